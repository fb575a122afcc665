"""Waits for what a gRPC call brings; what goes wrong with it becomes an error of the catalogue."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import grpc

from penstock.client.errors import ConnectionLost
from penstock.client.statuses import error_of


async def next_of(call: "grpc.aio.StreamStreamCall[Any, Any] | grpc.aio.UnaryStreamCall[Any, Any]") -> Any:
    """The next message of a stream; None at its end. Who cancels this cancels the call."""
    message = await answer_of(call.read())
    return None if message is grpc.aio.EOF else message


async def answer_of(call: Awaitable[Any]) -> Any:
    """The answer of a call.

    gRPC confuses two things: a channel that is closed cancels whoever waits for its calls, and a call that is
    cancelled before it has begun may end with a status instead. So it is the task that tells which it was.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        if task.cancelling() == before:
            raise error_of(error) from None
    except asyncio.CancelledError:
        if task.cancelling() == before:
            raise ConnectionLost("the connection was given up") from None
    if task.cancelling() > before:
        raise asyncio.CancelledError
    return answer
