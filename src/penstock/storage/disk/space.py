"""How much room there is, and how much has to stay free.

RocksDB does not always recover from a full disk, so it is never led there: commits are refused while what is
only in the write-ahead log could not be moved into tables any more.
"""

import os
from contextlib import suppress
from pathlib import Path

from penstock.storage.disk.database import Sizes
from penstock.storage.disk.failures import StorageFull

MIB = 1024 * 1024


class Space:
    """The file system below a database, and what the database has in its write-ahead log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes = Sizes.of(folder.parent)
        self._wal_bytes = 0
        self._new_bytes = 0
        self._is_short = False
        self.measure()

    def free_bytes(self) -> int:
        """What is left for us."""
        found = os.statvfs(self._folder.parent)
        return found.f_bavail * found.f_frsize

    @property
    def reserve_bytes(self) -> int:
        """What has to stay free."""
        return self._wal_bytes + self._new_bytes + self._sizes.buffer_bytes + self._sizes.slack_bytes

    def check(self) -> None:
        """Refuse to go on when too little is free."""
        free, reserve = self.free_bytes(), self.reserve_bytes
        if self._is_short:
            reserve += reserve // 4  # else it would go to and fro with every file that RocksDB removes
        self._is_short = free < reserve
        if self._is_short:
            words = f"{free / MIB:.1f} MiB are free, and {reserve / MIB:.1f} MiB have to be"
            raise StorageFull(f"the disk is full: {words} ({self._folder.parent})")

    def wrote(self, count: int) -> None:
        """So many bytes were added to the write-ahead log."""
        self._new_bytes += count
        if self._new_bytes > self._sizes.buffer_bytes // 4:
            self.measure()

    def measure(self) -> None:
        """Look how long the write-ahead log is; RocksDB shortens it when it wants to."""
        total = 0
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(".log"):
                    with suppress(FileNotFoundError):  # it has just been removed
                        total += entry.stat().st_size
        self._wal_bytes, self._new_bytes = total, 0
