"""Parts of the log of about the same size: cut where pieces end, by what the index knows of them."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from penstock.core.ports import Portion
from penstock.storage.disk.index import Piece


class _Slice(Struct, frozen=True):
    """What a piece has of a part of the log."""

    last: int
    rows: int
    bytes: int


def split(
    pieces: Sequence[Piece],
    after: int,
    until: int,
    parts: int,
    count: Callable[[Piece], int],
    limit_rows: int | None = None,
) -> tuple[Portion, ...]:
    """What is between two offsets in at most so many portions, which meet; with a limit, of so many rows.

    Args:
        pieces: those that have something of it, oldest first.
        count: how many rows of a piece are asked for, at most.
    """
    slices = [_slice(piece, after, until, count(piece)) for piece in pieces]
    if limit_rows is not None:
        slices, until = _limit(slices, after, until, limit_rows)
    total, passed = sum(each.bytes for each in slices), 0
    portions: list[Portion] = []
    rows = size = 0
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


def _slice(piece: Piece, after: int, until: int, rows: int) -> _Slice:
    """A piece as far as it lies between two offsets. Nobody knows where its rows are, so they may all be."""
    first, last = max(piece.first, after + 1), min(piece.last, until)
    offsets = piece.last - piece.first + 1
    kept = min(rows, last - first + 1)
    return _Slice(
        last, kept, piece.bytes * kept * (last - first + 1) // (max(piece.count, kept, 1) * offsets)
    )


def _limit(slices: list[_Slice], after: int, until: int, limit_rows: int) -> tuple[list[_Slice], int]:
    """The first of some slices, as many as have no more rows; if not even the first does, a part of it."""
    taken: list[_Slice] = []
    for each in slices:
        if each.rows > limit_rows:
            if taken:
                return taken, taken[-1].last
            # There are at most as many rows as offsets.
            return [
                _Slice(after + limit_rows, limit_rows, each.bytes * limit_rows // each.rows)
            ], after + limit_rows
        taken.append(each)
        limit_rows -= each.rows
    return taken, until
