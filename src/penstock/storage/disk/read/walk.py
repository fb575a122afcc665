"""Walk of a reader through the pieces of the log, with the gaps that it finds."""

from itertools import pairwise

from penstock.common.statement import Gap
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
