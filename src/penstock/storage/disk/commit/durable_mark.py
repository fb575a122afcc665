"""Durable mark: the last acknowledged offset and commit, in a file beside the database.

Written after every commit, never ahead of one. So a log that ends before the mark has lost messages, even if
RocksDB reports no error. Synced at start only: after a power cut it may be behind, which can only hide a loss
from the same power cut. Two slots are written alternately; a torn write leaves the other.
"""

import os
from contextlib import suppress
from pathlib import Path
from struct import Struct as Layout
from zlib import crc32

from msgspec import Struct

from penstock.storage.disk.rocksdb.layout import MARK_FILE

_SLOT = Layout(">QQQQ")  # serial number, offset, commit, epoch
_CHECK = Layout(">I")
_SLOT_BYTES = 512  # a sector, so that no write touches both


class MarkValue(Struct, frozen=True):
    """The last acknowledged position."""

    offset: int
    commit: int
    epoch: int = 0
    """Epoch of the writing process; never reused, even if the log has lost it."""


class DurableMark:
    """Mark of a data directory, opened for writing."""

    def __init__(self, descriptor: int, serial: int, value: MarkValue | None) -> None:
        self._descriptor = descriptor
        self._serial = serial
        self.value = value
        self.epoch = value.epoch if value else 0
        """Epoch that the next writes carry."""

    @classmethod
    def open(cls, path: Path) -> "DurableMark":
        """Open the mark of a data directory; create it if it is missing."""
        descriptor = os.open(path / MARK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        if os.fstat(descriptor).st_size < 2 * _SLOT_BYTES:
            with suppress(OSError):  # the disk is full, or the file system does not support it
                os.posix_fallocate(descriptor, 0, 2 * _SLOT_BYTES)  # so that a full disk cannot stop it later
        serial, value = _newest(os.pread(descriptor, 2 * _SLOT_BYTES, 0))
        return cls(descriptor, serial, value)

    @staticmethod
    def read(path: Path) -> MarkValue | None:
        """Read the mark of a data directory; None if it is missing or damaged."""
        try:
            return _newest((path / MARK_FILE).read_bytes())[1]
        except FileNotFoundError:
            return None

    def write(self, offset: int, commit: int) -> None:
        """Record that everything up to this offset and commit is on disk."""
        self._serial += 1
        slot = _SLOT.pack(self._serial, offset, commit, self.epoch)
        place = self._serial % 2 * _SLOT_BYTES
        os.pwrite(self._descriptor, slot + _CHECK.pack(crc32(slot)), place)
        self.value = MarkValue(offset, commit, self.epoch)

    def sync(self) -> None:
        """Sync the file; for a new one, its entry in the folder has to be synced too."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _newest(data: bytes) -> tuple[int, MarkValue | None]:
    slots = [found for place in (0, _SLOT_BYTES) if (found := _decode(data[place:]))]
    return max(slots, default=(0, None), key=lambda slot: slot[0])


def _decode(data: bytes) -> tuple[int, MarkValue] | None:
    slot, check = data[: _SLOT.size], data[_SLOT.size : _SLOT.size + _CHECK.size]
    if len(check) < _CHECK.size or crc32(slot) != _CHECK.unpack(check)[0]:
        return None
    serial, offset, commit, epoch = _SLOT.unpack(slot)
    return serial, MarkValue(offset, commit, epoch)
