"""Whether RocksDB's write-ahead log hangs together: it is looked at before RocksDB does.

Where bytes are missing or were put in between, RocksDB may never come back from opening it. Only the chain of
records is followed here; checksums are RocksDB's own business, and so is a last record that was not finished.
"""

from pathlib import Path
from struct import Struct as Layout

_BLOCK = 32 * 1024
_HEADER = Layout("<IHB")  # checksum, length, kind
_FULL, _FIRST, _MIDDLE, _LAST = range(1, 5)
_BEGINS = (_FULL, _FIRST)
_KINDS = frozenset((_FULL, _FIRST, _MIDDLE, _LAST, 9, 10, 130))  # the last three tell of the file itself


def find_break(data: bytes) -> int | None:
    """Where the chain of records breaks, if it does before the end."""
    place, is_amid = 0, False
    while place + _HEADER.size <= len(data):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER.size:
            place += left  # too little for a record: filled up with zeros
            continue
        _, length, kind = _HEADER.unpack_from(data, place)
        if not kind and not length and not data[place:].strip(b"\0"):
            return None  # room that was made and not used
        if kind not in _KINDS or _HEADER.size + length > left:
            return place
        if kind <= _LAST and (kind in _BEGINS) is is_amid:
            return place
        is_amid = kind in (_FIRST, _MIDDLE) if kind <= _LAST else is_amid
        place += _HEADER.size + length
    return None


def find_broken(folder: Path) -> dict[Path, int]:
    """The files of a write-ahead log that do not hang together, and where."""
    found = {path: find_break(path.read_bytes()) for path in sorted(folder.glob("*.log"))}
    return {path: place for path, place in found.items() if place is not None}


def cut_broken(folder: Path) -> None:
    """Leave of each file what hangs together."""
    for path, place in find_broken(folder).items():
        with path.open("r+b") as file:
            file.truncate(place)
