"""In-memory index of the log: all pieces, frames of rows and sealed batches, by offset.

The loop adds committed frames; the sealer replaces frames by batches; retention removes the oldest.
Thread-safe: every call takes a lock and returns copies. A piece may be replaced before a reader loads it:
then the reader asks the index again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from threading import Lock

from msgspec.structs import replace

from penstock.storage.disk.pieces.frames import Range
from penstock.storage.disk.pieces.piece import Piece

_first_of = attrgetter("first")
_last_of = attrgetter("last")
_began_of = attrgetter("began_at")


class Index:
    """All pieces, oldest first. They are contiguous; a gap between two is damage."""

    def __init__(self, pieces: Sequence[Piece] = (), first_offset: int = 1) -> None:
        self._lock = Lock()
        self._pieces: list[Piece] = []
        for piece in pieces:
            self._pieces.append(self._in_time(piece, len(self._pieces)))
        self._bytes = sum(piece.bytes for piece in pieces)
        self.first_offset = first_offset  # everything before was removed by retention

    @property
    def bytes(self) -> int:
        """Stored size of all pieces."""
        return self._bytes

    @property
    def last_offset(self) -> int:
        """The last committed offset."""
        with self._lock:
            return self._pieces[-1].last if self._pieces else self.first_offset - 1

    def add(self, piece: Piece) -> None:
        """Add a committed frame."""
        with self._lock:
            self._pieces.append(self._in_time(piece, len(self._pieces)))
            self._bytes += piece.bytes

    def _in_time(self, piece: Piece, position: int) -> Piece:
        """Piece with a time not before its predecessor's, even if the clock was set back."""
        earlier = self._pieces[position - 1].began_at if position else 0
        return piece if piece.began_at >= earlier else replace(piece, began_at=earlier)

    def replace(self, batch: Piece) -> None:
        """Replace sealed frames: the batch takes the place of all pieces in its range."""
        with self._lock:
            start = bisect_left(self._pieces, batch.first, key=_last_of)
            stop = bisect_right(self._pieces, batch.last, lo=start, key=_last_of)
            self._bytes += batch.bytes - sum(piece.bytes for piece in self._pieces[start:stop])
            self._pieces[start:stop] = [self._in_time(batch, start)]

    def trim(self, first_offset: int) -> None:
        """Remove all pieces before this offset."""
        with self._lock:
            stop = bisect_left(self._pieces, first_offset, key=_last_of)
            self._bytes -= sum(piece.bytes for piece in self._pieces[:stop])
            del self._pieces[:stop]
            self.first_offset = first_offset

    def after(self, offset: int, limit: int = 1_000, until: int | None = None) -> list[Piece]:
        """Up to `limit` pieces that end after an offset, oldest first."""
        with self._lock:
            start = bisect_right(self._pieces, offset, key=_last_of)
            stop = min(start + limit, len(self._pieces))
            if until is not None:
                stop = bisect_right(self._pieces, until, start, stop, key=_first_of)
            return self._pieces[start:stop]

    def unsealed(self, limit: int) -> list[Piece]:
        """The oldest unsealed frames, up to `limit`."""
        with self._lock:
            start = len(self._pieces)
            while start and not self._pieces[start - 1].is_sealed:
                start -= 1
            return self._pieces[start : start + limit]

    def at_time(self, wall_us: int) -> int:
        """Offset before every message from this time on; some older messages may follow it too."""
        with self._lock:
            at = bisect_left(self._pieces, wall_us, key=_began_of)
            return self._pieces[at - 1].first - 1 if at else self.first_offset - 1

    def gaps(self, after: int, until: int) -> list[Range]:
        """Offsets in a range that no piece covers, except those removed by retention."""
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
