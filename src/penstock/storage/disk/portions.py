"""Parts of the log of about the same size: cut where pieces end, by what the index knows of them."""

from collections.abc import Callable, Iterable
from sys import maxsize

from msgspec import Struct

from penstock.core.archive import Portion
from penstock.storage.disk.index import Piece


class Bounds(Struct, frozen=True):
    """Which part of the log is asked for: what lies between two offsets, and how much of it."""

    after: int
    until: int
    limit_rows: int | None = None
    limit_bytes: int | None = None


class _Slice(Struct, frozen=True):
    """What a piece has of a part of the log."""

    first: int
    last: int
    rows: int
    bytes: int


def split(
    pieces: Iterable[Piece], bounds: Bounds, parts: int, count: Callable[[Piece], int]
) -> tuple[Portion, ...]:
    """What is within bounds in at most so many portions, which meet.

    Args:
        pieces: those that have something of it, oldest first; none is looked at beyond the limits.
        count: how many rows of a piece are asked for, at most.
    """
    slices, until = _take((_slice(piece, bounds, count(piece)) for piece in pieces), bounds)
    total, passed = sum(each.bytes for each in slices), 0
    portions: list[Portion] = []
    after, rows, size = bounds.after, 0, 0
    for each in slices:
        rows, size, passed = rows + each.rows, size + each.bytes, passed + each.bytes
        is_enough = passed * parts >= total * (len(portions) + 1)
        if is_enough and rows and len(portions) < parts - 1 and each is not slices[-1]:
            portions.append(Portion(after, each.last, rows, size))
            after, rows, size = each.last, 0, 0
    if portions and not rows:  # nobody need come for that alone
        before = portions.pop()
        after, rows, size = before.after, before.rows, before.bytes + size
    return (*portions, Portion(after, until, rows, size))


def _slice(piece: Piece, bounds: Bounds, rows: int) -> _Slice:
    """A piece as far as it lies within bounds. Nobody knows where its rows are, so they may all be."""
    first, last = max(piece.first, bounds.after + 1), min(piece.last, bounds.until)
    offsets = piece.last - piece.first + 1
    kept = min(rows, last - first + 1)
    size = piece.bytes * kept * (last - first + 1) // (max(piece.count, kept, 1) * offsets)
    return _Slice(first, last, kept, size)


def _take(slices: Iterable[_Slice], bounds: Bounds) -> tuple[list[_Slice], int]:
    """The first of some slices, as many as there is room for, and the offset that they go up to.

    There is always something: of a first one with too many rows a part, of one with too many bytes all.
    """
    taken: list[_Slice] = []
    room_rows = maxsize if bounds.limit_rows is None else bounds.limit_rows
    room_bytes = maxsize if bounds.limit_bytes is None else bounds.limit_bytes
    is_something = False
    for each in slices:
        if is_something and (each.rows > room_rows or each.bytes > room_bytes):
            return taken, taken[-1].last
        if each.rows > room_rows:
            part = _first_rows(each, room_rows)
            return [*taken, part], part.last
        taken.append(each)
        room_rows, room_bytes = room_rows - each.rows, room_bytes - each.bytes
        is_something = is_something or each.rows > 0
    return taken, bounds.until


def _first_rows(whole: _Slice, rows: int) -> _Slice:
    """The beginning of a slice with no more than so many rows: there are at most as many as offsets."""
    return _Slice(whole.first, whole.first + rows - 1, rows, whole.bytes * rows // whole.rows)
