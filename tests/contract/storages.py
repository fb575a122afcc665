"""Every log and state store that there is. A new implementation is one more line in `STORAGES`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from msgspec import Struct

from penstock.core.ports.log import Log
from penstock.core.ports.state import StateStore
from penstock.core.ports.turn import Turn
from penstock.core.runtime.clock import SystemClock
from penstock.storage.disk.log import DiskLog
from penstock.storage.memory import MemoryLog
from tests.support.turns import end_turn

ROOM_BYTES = 1_000_000


class Storage(Struct, frozen=True):
    """A log and the state store that shares its commits."""

    log: Log
    state: StateStore

    @property
    def turn(self) -> Turn:
        """The present turn."""
        return self.log.sequencer.turn

    async def commit(self) -> None:
        """End the turn, and wait until what it left is safe."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(failure: Exception | None) -> None:
            assert failure is None
            settled.set_result(None)

        if self.log.is_committed(self.log.ticket):
            settle(None)
        else:
            self.log.when_committed(self.log.ticket, settle)
        end_turn(self.log)
        await settled


OpenStorage = Callable[[Path], AbstractAsyncContextManager[Storage]]


@asynccontextmanager
async def open_memory(folder: Path) -> AsyncIterator[Storage]:
    log = MemoryLog(ROOM_BYTES)
    yield Storage(log, log.state)


@asynccontextmanager
async def open_disk(folder: Path) -> AsyncIterator[Storage]:
    log = DiskLog(folder, asyncio.get_running_loop(), SystemClock())
    try:
        yield Storage(log, log.state)
    finally:
        log.close()


STORAGES: dict[str, OpenStorage] = {
    "memory": open_memory,
    "disk": open_disk,
}
