"""Split of a range into portions of similar size, at the ends of pieces, by the index alone."""

from collections.abc import Callable, Iterable
from sys import maxsize

from msgspec import Struct

from penstock.core.ports.archive import Portion
from penstock.storage.disk.pieces.piece import Piece


class Bounds(Struct, frozen=True):
    """Requested range of offsets, with limits."""

    after: int
    until: int
    limit_rows: int | None = None
    limit_bytes: int | None = None


class _Slice(Struct, frozen=True):
    """Part of a piece within bounds."""

    first: int
    last: int
    rows: int
    bytes: int


def split(
    pieces: Iterable[Piece], bounds: Bounds, parts: int, count: Callable[[Piece], int]
) -> tuple[Portion, ...]:
    """Split a range into at most `parts` contiguous portions.

    Args:
        pieces: the pieces of the range, oldest first; consumed only up to the limits.
        count: upper bound of the wanted rows of a piece.
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
    if portions and not rows:  # no portion for empty pieces alone
        before = portions.pop()
        after, rows, size = before.after, before.rows, before.bytes + size
    return (*portions, Portion(after, until, rows, size))


def _slice(piece: Piece, bounds: Bounds, rows: int) -> _Slice:
    """Part of a piece within bounds. Positions of rows are unknown, so all may be in it."""
    first, last = max(piece.first, bounds.after + 1), min(piece.last, bounds.until)
    offsets = piece.last - piece.first + 1
    kept = min(rows, last - first + 1)
    size = piece.bytes * kept * (last - first + 1) // (max(piece.count, kept, 1) * offsets)
    return _Slice(first, last, kept, size)


def _take(slices: Iterable[_Slice], bounds: Bounds) -> tuple[list[_Slice], int]:
    """The first slices within the limits, and the offset that they reach.

    Never empty: a first slice with too many rows is cut, one with too many bytes is taken whole.
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
    """The beginning of a slice with at most `rows` rows: there is at most one per offset."""
    return _Slice(whole.first, whole.first + rows - 1, rows, whole.bytes * rows // whole.rows)
