"""Callback to future: await what the broker reports by callback, above all a commit."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from penstock.core.ports.log import Settled
from penstock.errors import PenstockError, StorageUnavailable

T = TypeVar("T")


async def outcome_of(start: Callable[[Callable[[T | PenstockError], None]], None]) -> T:
    """Call `start` with a callback, and return what the callback gets; raise it if it is an error."""
    outcome: asyncio.Future[T | PenstockError] = asyncio.get_running_loop().create_future()

    def settle(result: T | PenstockError) -> None:
        if not outcome.done():  # the request may have been cancelled
            outcome.set_result(result)

    start(settle)
    result = await outcome
    if isinstance(result, PenstockError):
        raise result
    return result


async def stored(when_stored: Callable[[Settled], None]) -> None:
    """Wait until the changes of this turn of the loop are committed.

    Raises:
        StorageUnavailable: the commit failed. It will be retried; repeating the request is safe.
    """

    def start(settle: Callable[[PenstockError | None], None]) -> None:
        def on_settled(failure: Exception | None) -> None:
            settle(None if failure is None else StorageUnavailable(f"not stored yet: {failure}"))

        when_stored(on_settled)

    await outcome_of(start)
