"""Storage of one node: log and state records, in a data directory or in memory."""

from asyncio import AbstractEventLoop
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from penstock.core.ports.archive import Archive
from penstock.core.ports.log import Log
from penstock.core.ports.state import StateStore
from penstock.core.runtime.clock import Clock
from penstock.core.settings import LogSettings
from penstock.extras import require_extra

Durability = Literal["fsync", "os", "memory"]
"""Point at which a commit counts as made: synced, given to the operating system, or at once."""


class StorageSettings(Struct, frozen=True, kw_only=True):
    """Place and limits of a storage."""

    data_dir: str | None = None
    """Data directory; None keeps everything in memory."""
    durability: Durability = "fsync"
    node_id: str = ""
    log: LogSettings = LogSettings()


class Upkeep(Protocol):
    """Background work and lifetime of a storage."""

    @property
    def stored_bytes(self) -> int:
        """Approximate size of the stored messages."""
        ...

    @property
    def queued_bytes(self) -> int:
        """Approximate memory of what waits for its commit."""
        ...

    @property
    def is_idle(self) -> bool:
        """No callback waits for a commit."""
        ...

    def configure(self, settings: LogSettings) -> Callable[[], bool] | None:
        """Apply changed limits. Returns a step to repeat in the background while it returns True, if any."""
        ...

    def trim(self, queued_from: int | None) -> None:
        """Apply retention in the background; `queued_from` is the oldest offset in any offline queue."""
        ...

    def reap(self) -> bool:
        """Once a second: remove what has lapsed. Returns True if that changed the present turn."""
        ...

    def close(self) -> None:
        """Write the rest and release everything."""
        ...


class Storage(Struct, frozen=True):
    """Log, state and archive that share their commits, with their upkeep."""

    log: Log
    state: StateStore
    archive: Archive | None
    """Bulk reads; None in memory."""
    upkeep: Upkeep


def open_storage(settings: StorageSettings, loop: AbstractEventLoop, clock: Clock) -> Storage:
    """Open the data directory, damaged or not, or begin in memory.

    Raises:
        InvalidConfig: the data directory is in use, of a newer format, or not a data directory.
    """
    if settings.data_dir is None:
        from penstock.storage.memory import MemoryLog  # noqa: PLC0415 - one of two

        log = MemoryLog(settings.log.memory_bytes)
        return Storage(log, log.state, None, log)
    require_extra("log", "data_dir")
    from penstock.storage.disk.log import DiskLog  # noqa: PLC0415 - slow, and only needed here

    disk = DiskLog(
        Path(settings.data_dir),
        loop,
        clock,
        node_id=settings.node_id,
        durability=settings.durability,
        settings=settings.log,
    )
    return Storage(disk, disk.state, disk, disk)
