"""Where each offset lies: the pieces of the log in order, frames of rows and sealed batches alike.

The loop adds what was committed; the sealer replaces frames by batches; retention takes the oldest away.
Readers in threads of their own ask at the same time, so every question is answered under a lock and with
copies. A piece that a reader was told of may be replaced before it is read: then it asks again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from threading import Lock

from msgspec import Struct
from msgspec.structs import replace

from penstock.storage.disk.frames import Frame, Range, Summary

_first_of = attrgetter("first")
_last_of = attrgetter("last")
_began_of = attrgetter("began_at")


class Piece(Struct, frozen=True, gc=False):
    """One stored value: a frame of rows, or a sealed batch."""

    first: int
    last: int
    count: int
    """How many messages it has; fewer than offsets where some topics are not kept."""
    bytes: int
    began_at: int
    """When its first message was published, in microseconds."""
    is_sealed: bool
    holes: tuple[Range, ...] = ()
    reserved: int | None = None
    """How many of its messages are not `is_public`, if that is known."""

    @classmethod
    def of_frame(cls, frame: Frame, size: int) -> "Piece":
        """A frame that takes so many bytes."""
        count = sum([run.count for run in frame.runs])
        began_at = frame.runs[0].published_at if frame.runs else frame.committed_at
        return cls(frame.first, frame.last, count, size, began_at, is_sealed=False, holes=frame.holes)

    @classmethod
    def of_summary(cls, summary: Summary) -> "Piece":
        """The batch that a summary tells of."""
        return cls(
            summary.first,
            summary.last,
            summary.count,
            summary.bytes,
            summary.began_at,
            is_sealed=True,
            holes=summary.holes,
            reserved=summary.reserved,
        )


class Index:
    """All pieces, oldest first. They meet: where they do not, something is damaged."""

    def __init__(self, pieces: Sequence[Piece] = (), first_offset: int = 1) -> None:
        self._lock = Lock()
        self._pieces: list[Piece] = []
        for piece in pieces:
            self._pieces.append(self._in_time(piece, len(self._pieces)))
        self._bytes = sum(piece.bytes for piece in pieces)
        self.first_offset = first_offset  # everything before has left by retention

    @property
    def bytes(self) -> int:
        """What all pieces take, as stored."""
        return self._bytes

    @property
    def last_offset(self) -> int:
        """The last offset that is committed."""
        with self._lock:
            return self._pieces[-1].last if self._pieces else self.first_offset - 1

    def add(self, piece: Piece) -> None:
        """A frame was committed."""
        with self._lock:
            self._pieces.append(self._in_time(piece, len(self._pieces)))
            self._bytes += piece.bytes

    def _in_time(self, piece: Piece, position: int) -> Piece:
        """A piece with a time that is not before the last one's, whatever was done to the clock."""
        earlier = self._pieces[position - 1].began_at if position else 0
        return piece if piece.began_at >= earlier else replace(piece, began_at=earlier)

    def replace(self, batch: Piece) -> None:
        """Frames were sealed: this batch stands for all pieces between its first and last offset."""
        with self._lock:
            start = bisect_left(self._pieces, batch.first, key=_last_of)
            stop = bisect_right(self._pieces, batch.last, lo=start, key=_last_of)
            self._bytes += batch.bytes - sum(piece.bytes for piece in self._pieces[start:stop])
            self._pieces[start:stop] = [self._in_time(batch, start)]

    def trim(self, first_offset: int) -> None:
        """Everything before this offset has left by retention."""
        with self._lock:
            stop = bisect_left(self._pieces, first_offset, key=_last_of)
            self._bytes -= sum(piece.bytes for piece in self._pieces[:stop])
            del self._pieces[:stop]
            self.first_offset = first_offset

    def after(self, offset: int, limit: int = 1_000, until: int | None = None) -> list[Piece]:
        """Up to `limit` pieces that have something after an offset, oldest first."""
        with self._lock:
            start = bisect_right(self._pieces, offset, key=_last_of)
            stop = min(start + limit, len(self._pieces))
            if until is not None:
                stop = bisect_right(self._pieces, until, start, stop, key=_first_of)
            return self._pieces[start:stop]

    def unsealed(self, limit: int) -> list[Piece]:
        """The oldest frames that are not sealed, up to `limit` of them."""
        with self._lock:
            start = len(self._pieces)
            while start and not self._pieces[start - 1].is_sealed:
                start -= 1
            return self._pieces[start : start + limit]

    def at_time(self, wall_us: int) -> int:
        """The offset after which everything from this time on lies; a little more may lie after it too."""
        with self._lock:
            at = bisect_left(self._pieces, wall_us, key=_began_of)
            return self._pieces[at - 1].first - 1 if at else self.first_offset - 1

    def gaps(self, after: int, until: int) -> list[Range]:
        """Offsets between two that no piece covers although retention has not taken them."""
        found: list[Range] = []
        expected = max(after + 1, self.first_offset)
        with self._lock:
            pieces = self._pieces[bisect_right(self._pieces, after, key=_last_of) :]
        for piece in pieces:
            if expected > until:
                return found
            if piece.first > expected:
                found.append((expected, min(piece.first - 1, until)))
            expected = max(expected, piece.last + 1)
        if expected <= until and pieces:
            found.append((expected, until))
        return found

    def __len__(self) -> int:
        return len(self._pieces)
