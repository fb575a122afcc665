"""Free-space guard: refuses commits before the disk is full.

RocksDB does not always recover from a full disk. So commits are refused while there is no room to move the
write-ahead log into tables.
"""

import os
from contextlib import suppress
from pathlib import Path

from penstock.storage.disk.rocksdb.database import Sizes
from penstock.storage.disk.rocksdb.errors import StorageFull

MIB = 1024 * 1024


class Space:
    """Free space of a file system, and the reserve that the write-ahead log needs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes = Sizes.of(folder.parent)
        self._wal_bytes = 0
        self._new_bytes = 0
        self._is_short = False
        self.measure()

    def free_bytes(self) -> int:
        """Bytes that are free for this process."""
        found = os.statvfs(self._folder.parent)
        return found.f_bavail * found.f_frsize

    @property
    def reserve_bytes(self) -> int:
        """Bytes that must stay free."""
        return self._wal_bytes + self._new_bytes + self._sizes.buffer_bytes + self._sizes.slack_bytes

    def check(self) -> None:
        """Check that the reserve is free.

        Raises:
            StorageFull: less than the reserve is free.
        """
        free, reserve = self.free_bytes(), self.reserve_bytes
        if self._is_short:
            reserve += reserve // 4  # hysteresis: RocksDB removes files all the time
        self._is_short = free < reserve
        if self._is_short:
            words = f"{free / MIB:.1f} MiB are free, {reserve / MIB:.1f} MiB must be free"
            raise StorageFull(f"the disk is full: {words} ({self._folder.parent})")

    def wrote(self, count: int) -> None:
        """Count bytes that were added to the write-ahead log."""
        self._new_bytes += count
        if self._new_bytes > self._sizes.buffer_bytes // 4:
            self.measure()

    def measure(self) -> None:
        """Measure the write-ahead log, which RocksDB shortens at any time."""
        total = 0
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(".log"):
                    with suppress(FileNotFoundError):  # removed meanwhile
                        total += entry.stat().st_size
        self._wal_bytes, self._new_bytes = total, 0
