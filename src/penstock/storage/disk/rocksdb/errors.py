"""Errors and damage of a database. Outside of storage all errors are `storage-unavailable`.

RocksDB reports that a block cannot be read, not which keys are in it. Later blocks can be read, so the key
where they begin is searched for: with doubled steps, then by bisection.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from penstock.errors import StorageUnavailable


class StorageFull(StorageUnavailable):
    """The disk is full, or below its reserve."""


class DamagedData(StorageUnavailable):
    """Stored data cannot be read: the checksum does not match, or the file is missing.

    `key` is the first unreadable key; a scan has returned everything before it. `found` has the values of
    the other keys of a `get`.
    """

    def __init__(
        self, family: str, key: bytes, words: str, found: Mapping[bytes, bytes | None] | None = None
    ) -> None:
        super().__init__(f"{family} is damaged at {key.hex() or 'its beginning'}: {words}")
        self.family = family
        self.key = key
        self.found: Mapping[bytes, bytes | None] = found or {}


# RocksDB's errors have no types, only texts.

_NOT_THERE = "does not exist (create_if_missing is false)"


def is_stall(words: str) -> bool:
    """The write can be retried: RocksDB is busy, and was asked to fail instead of blocking."""
    return words.startswith("Result incomplete: Write stall")


def is_damage(words: str) -> bool:
    """Files are missing, or differ from what was written."""
    return words.startswith(("Corruption:", "IO error: No such file or directory")) or _NOT_THERE in words


def unavailable(words: str) -> StorageUnavailable:
    """The error to raise for any other failure."""
    return StorageFull(words) if "No space left" in words else StorageUnavailable(words)


class SalvageMethod(StrEnum):
    """Method by which a damaged database was opened, the least lossy first."""

    SKIPPED = "skipped"
    """Damaged records of the write-ahead log were skipped."""
    CUT = "cut"
    """The write-ahead log was cut where it is damaged."""
    COPIED = "copied"
    """Everything that can be read was copied into a new database."""
    REPAIRED = "repaired"
    """The manifest was rebuilt; content of damaged tables is lost, or older than it was."""
    EMPTY = "empty"
    """Nothing could be read."""


class Salvage(Struct, frozen=True):
    """Report of a damaged database that was opened. Session changes may be lost."""

    method: SalvageMethod
    words: str
    """The error text of RocksDB."""
    aside: Path
    """The folder that has the damaged database now."""

    @property
    def note(self) -> str:
        """One sentence for the operator."""
        return (
            f"the database was damaged ({self.words}) and is {self.method} now, "
            f"changes of sessions may be lost; the damaged one is kept in {self.aside}"
        )


CanSeek = Callable[[bytes], bool]
"""True if a scan can start at a key."""

_STEP_BYTES, _MOST_BYTES = 8, 1024
"""Bytes by which keys are extended, per step and in total, to find the exact start."""


def next_readable(can_seek: CanSeek, key: bytes) -> bytes | None:
    """The first readable key after this one, None if there is none."""
    width = len(key) + _STEP_BYTES
    low = int.from_bytes(key.ljust(width, b"\0"), "big")

    def is_readable(number: int) -> bool:
        return can_seek(number.to_bytes(width, "big"))

    step = 1
    while not is_readable(low + step):
        step *= 2
        if (low + step) >> 8 * width:
            return None
    high = _bisect(is_readable, low + step // 2, low + step)
    while width < len(key) + _MOST_BYTES:  # longer keys, until they find no earlier start
        width += _STEP_BYTES
        low, limit = high - 1 << 8 * _STEP_BYTES, high << 8 * _STEP_BYTES
        high = low if is_readable(low) else _bisect(is_readable, low, limit)
        if high in {low, limit}:
            break
    return high.to_bytes(width, "big")


def _bisect(is_readable: Callable[[int], bool], low: int, high: int) -> int:
    """The first readable number between an unreadable and a readable one."""
    while high - low > 1:
        middle = (low + high) // 2
        if is_readable(middle):
            high = middle
        else:
            low = middle
    return high
