"""Repair of journal headers on which RocksDB would loop forever.

The write-ahead log and the manifest are journals: blocks of records, each with a header of length and kind.
Some kinds belong to recycled journals, which this database never has, and RocksDB rereads such a header
endlessly. One flipped bit or a few missing bytes can produce one, and then opening never ends. In a copy the
header gets an ordinary kind, which does not match its checksum: RocksDB skips the rest of the block, as with
any damage, and continues with the next. All other damage is left to RocksDB.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct as Layout

_BLOCK_BYTES = 32 * 1024
_PIECE_BYTES = 64 * _BLOCK_BYTES
_HEADER = Layout("<IHB")  # checksum, length, kind
_KIND_PLACE = 6
_ORDINARY = frozenset((1, 2, 3, 4))
_TRAPS = frozenset((5, 6, 7, 8, 11))
_HARMLESS = b"\1"


def find_endless_journal(folder: Path) -> Path | None:
    """A journal in the folder on which RocksDB would loop forever; None if there is none."""
    for path in _journals(folder):
        with suppress(OSError):  # removed meanwhile, or RocksDB reports the error
            if any(True for _ in _traps_of(path)):
                return path
    return None


def defuse_journals(folder: Path) -> None:
    """Overwrite the endless headers in all journals of a folder."""
    for path in _journals(folder):
        traps = list(_traps_of(path))
        if traps:
            with path.open("r+b") as file:
                for place in traps:
                    file.seek(place)
                    file.write(_HARMLESS)


def _journals(folder: Path) -> list[Path]:
    return [*folder.glob("*.log"), *folder.glob("MANIFEST-*")]


def _traps_of(path: Path) -> Iterator[int]:
    """File positions of the kind bytes of endless headers."""
    with path.open("rb") as file:
        start = 0
        while data := file.read(_PIECE_BYTES):
            yield from (start + place for place in _traps_in(data))
            start += len(data)


def _traps_in(data: bytes) -> Iterator[int]:
    for block in range(0, len(data), _BLOCK_BYTES):
        place, last = block, min(block + _BLOCK_BYTES, len(data)) - _HEADER.size
        while place <= last:
            _, length, kind = _HEADER.unpack_from(data, place)
            if kind not in _ORDINARY:  # RocksDB skips the rest of this block
                if kind in _TRAPS:
                    yield place + _KIND_PLACE
                break
            place += _HEADER.size + length
