"""What goes wrong on a disk. All of it is `storage-unavailable` to those outside."""

from collections.abc import Mapping

from penstock.errors import StorageUnavailable


class StorageFull(StorageUnavailable):
    """There is no room on the disk."""


class DamagedData(StorageUnavailable):
    """Something stored cannot be read: its checksum does not match, or its file is gone.

    `key` is the first that cannot be read; in a scan, everything before it was told. `found` has the values
    of the other keys of a `get`.
    """

    def __init__(
        self, family: str, key: bytes, words: str, found: Mapping[bytes, bytes | None] | None = None
    ) -> None:
        super().__init__(f"{family} is damaged at {key.hex() or 'its beginning'}: {words}")
        self.family = family
        self.key = key
        self.found: Mapping[bytes, bytes | None] = found or {}


# RocksDB's errors have no types, only words.

_NOT_THERE = "does not exist (create_if_missing is false)"


def is_stall(words: str) -> bool:
    """The write can be tried again: RocksDB is busy and was told not to make us wait."""
    return words.startswith("Result incomplete: Write stall")


def is_damage(words: str) -> bool:
    """Files are not what they were when they were written, or they are missing."""
    return words.startswith(("Corruption:", "IO error: No such file or directory")) or _NOT_THERE in words


def unavailable(words: str) -> StorageUnavailable:
    """The error to raise for any other failure."""
    return StorageFull(words) if "No space left" in words else StorageUnavailable(words)
