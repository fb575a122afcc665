"""Awaiting gRPC calls, and the metadata of every call."""

import asyncio
from collections.abc import Awaitable

import grpc
import pytest

from penstock.client.errors import ConnectionLost
from penstock.client.grpc.connection import await_call, credentials_metadata


async def swallow() -> None:
    """Ends with a status when it is cancelled, as a call does that had not begun."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing) from None


async def be_given_up() -> None:
    """Is cancelled by nobody, as a call whose channel is closed."""
    raise asyncio.CancelledError


@pytest.mark.parametrize("wait", [swallow, lambda: asyncio.sleep(60)])
async def test_a_task_that_is_cancelled_ends_so_whatever_the_call_makes_of_it(
    wait: "type[Awaitable[None]]",
) -> None:
    task = asyncio.create_task(await_call(wait()))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_channel_that_is_closed_is_a_lost_connection_also_for_who_was_cancelled_before() -> None:
    async def clean_up() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await await_call(be_given_up())

    task = asyncio.create_task(clean_up())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(ConnectionLost):
        await task


def test_a_password_needs_a_user() -> None:
    assert credentials_metadata(None, None) == ()
    assert credentials_metadata("ann", "ann!") == (("authorization", "Basic YW5uOmFubiE="),)
    with pytest.raises(ValueError, match="user"):
        credentials_metadata(None, "secret")
