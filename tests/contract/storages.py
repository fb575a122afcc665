"""Every log and state store that there is. A new implementation is one more line in `STORAGES`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from msgspec import Struct

from penstock.core.ports.log import Log
from penstock.core.ports.state import StateStore
from penstock.core.runtime.clock import SystemClock
from penstock.storage.disk.log import DiskLog
from penstock.storage.memory import MemoryLog, MemoryStateStore

ROOM_BYTES = 1_000_000


class Storage(Struct, frozen=True):
    """A log and the state store that shares its commits."""

    log: Log
    state: StateStore

    async def commit(self, head: int) -> None:
        """End a turn of which `head` is the newest offset, and wait until what it left is safe."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(failure: Exception | None) -> None:
            assert failure is None
            settled.set_result(None)

        if self.log.is_committed(self.log.ticket):
            settle(None)
        else:
            self.log.when_committed(self.log.ticket, settle)
        self.log.end_turn(head, is_urgent=True)
        await settled


OpenStorage = Callable[[Path], AbstractAsyncContextManager[Storage]]


@asynccontextmanager
async def open_memory(folder: Path) -> AsyncIterator[Storage]:
    yield Storage(MemoryLog(ROOM_BYTES), MemoryStateStore())


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
