"""Headers in RocksDB's journals that it would never get past, and how they are made harmless.

The write-ahead log and the list of tables are journals: blocks of records, each behind a header with its
length and kind. Some kinds belong to journals that are used again, which ours never are, and RocksDB returns
to such a header without end. One flipped bit or a few missing bytes are enough to make one, and then opening
never ends. In a copy it gets an ordinary kind: that does not fit its checksum, so RocksDB gives up the rest
of the block, as with any damage, and goes on with the next. Whatever else is damaged is RocksDB's business.
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


def find_trap(folder: Path) -> Path | None:
    """A journal in a folder that RocksDB would never come back from, if there is one."""
    for path in _journals(folder):
        with suppress(OSError):  # it has just been removed, or RocksDB will say what is wrong with it
            if any(True for _ in _traps_of(path)):
                return path
    return None


def disarm(folder: Path) -> None:
    """Make all journals in a folder harmless."""
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
    """Where the kinds of these headers are in a journal."""
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
            if kind not in _ORDINARY:  # RocksDB looks at nothing more in this block
                if kind in _TRAPS:
                    yield place + _KIND_PLACE
                break
            place += _HEADER.size + length
