"""Waiting until what a request has changed is safe."""

import asyncio
from collections.abc import Callable

from penstock.core.ports import Settled
from penstock.errors import StorageUnavailable


async def stored(when_stored: Callable[[Settled], None]) -> None:
    """Wait until what was put in this turn of the loop is committed.

    Raises:
        StorageUnavailable: it could not be. It will be tried again, and whoever asks again does no harm.
    """
    settled: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def settle(failure: Exception | None) -> None:
        if not settled.done():
            settled.set_result(failure)

    when_stored(settle)
    failure = await settled
    if failure is not None:
        raise StorageUnavailable(f"not stored yet: {failure}")
