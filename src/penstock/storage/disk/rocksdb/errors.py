"""Storage errors. Outside of storage all of them are `storage-unavailable`."""

from collections.abc import Mapping

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
