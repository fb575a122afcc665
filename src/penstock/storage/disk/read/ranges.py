"""Ranges of the log: the walk of a reader through pieces, with the gaps that it finds, and their split."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from sys import maxsize

from msgspec import Struct

from penstock.common.statement import Gap
from penstock.core.ports.archive import Portion
from penstock.model import Reason
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.pieces.piece import Piece

PIECES_AT_ONCE = 1_000


class Walk:
    """Walk from one offset to another. Pieces may be replaced or removed meanwhile, so ask for them often."""

    def __init__(self, index: Index, after: int, until: int) -> None:
        self._index = index
        self.position = after
        """Everything up to here is read, or a gap."""
        self.until = until
        self.gaps: list[Gap] = []
        self.unread: list[Piece] = []
        """Pieces that exist and cannot be read."""

    @property
    def is_finished(self) -> bool:
        return self.position >= self.until

    def ahead(self, limit: int) -> list[Piece]:
        """The next contiguous pieces; a gap before them is recorded and skipped."""
        pieces = self._index.after(self.position, limit, self.until)
        # Read after the pieces: what retention removed meanwhile must not count as damaged.
        self._miss(self._index.first_offset - 1, Reason.RETENTION)
        self._miss(pieces[0].first - 1 if pieces else self.until, Reason.DAMAGED)
        contiguous = pieces[:1]
        for piece, following in pairwise(pieces):
            if following.first != piece.last + 1:
                break
            contiguous.append(following)
        return contiguous

    def has_changed(self, piece: Piece) -> bool:
        """The piece that should be next was replaced or removed."""
        return self._index.after(self.position, 1) != [piece] or piece.first < self._index.first_offset

    def advance(self, piece: Piece, reached: int) -> None:
        """Record that a piece was read up to an offset."""
        reached = min(reached, self.until)
        for first, last in piece.holes:
            self._note(max(first, self.position + 1), min(last, reached), Reason.NEVER_STORED)
        self.position = max(self.position, reached)

    def miss(self, piece: Piece) -> None:
        """Record a piece that cannot be read."""
        self.unread.append(piece)
        self._miss(piece.last, Reason.DAMAGED)

    def _miss(self, last: int, reason: Reason) -> None:
        last = min(last, self.until)
        if last > self.position:
            self._note(self.position + 1, last, reason)
            self.position = last

    def _note(self, first: int, last: int, reason: Reason) -> None:
        if first > last:
            return
        if self.gaps and self.gaps[-1].last + 1 == first and self.gaps[-1].reason is reason:
            first = self.gaps.pop().first
        self.gaps.append(Gap(first, last, reason))


def known_gaps(index: Index, after: int, until: int) -> tuple[Gap, ...]:
    """Gaps between two offsets that the index knows, without loading pieces."""
    walk = Walk(index, after, until)
    while not walk.is_finished:
        for piece in walk.ahead(PIECES_AT_ONCE):
            walk.advance(piece, piece.last)
    return tuple(walk.gaps)


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
