"""Loader of pieces: several in one read, with a cache of recently used ones.

A frame that was sealed since the index lookup is found as its batch. A damaged piece gets contents that raise
`NotReadable`.

Stored messages have wall times, and the wall clock can be changed at any time. So `ExpiryClock` records the
difference of wall and monotonic clock at start and after each change. A message is judged by the difference
at its publish time, an older one by that at start.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock

from msgspec import MsgspecError

from penstock.common.stored_runs import expiry_of
from penstock.core.runtime.clock import Clock
from penstock.runs import Run
from penstock.storage.disk.pieces.frames import Range, decode_summary
from penstock.storage.disk.pieces.piece import Contents, Piece, Rows
from penstock.storage.disk.read.ranges import Walk
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import INDEX, LOG, ROWS, offset_key
from penstock.storage.disk.rocksdb.store import Store

_DAMAGED = b""
"""Placeholder for an unreadable value; decoding it fails."""
JUMP_S = 0.5
"""Smaller changes are clock synchronisation, larger ones a changed clock."""


class Loader:
    """Loads the contents of pieces.

    Args:
        recent_bytes: size of the cache.
    """

    def __init__(self, store: Store, recent_bytes: int) -> None:
        self._store = store
        self._recent = RecentPieces(recent_bytes)

    def keep(self, piece: Piece, contents: Contents) -> None:
        """Cache the contents of a piece that will be read again."""
        self._recent.put((piece.first, piece.last), contents)

    def open(self, walk: Walk, group: Sequence[Piece]) -> Iterator[tuple[Piece, Contents]]:
        """Contents of pieces, up to the first one that was replaced or removed meanwhile."""
        found = self._load(group)
        for piece in group:
            contents = found.get(piece)
            if not piece.count:
                walk.advance(piece, piece.last)
            elif contents is not None:
                yield piece, contents
            elif (batch := self._sealed_since(piece)) is not None:
                yield batch, self._load([batch])[batch] or _contents(batch, _DAMAGED)
                return
            elif walk.has_changed(piece):
                return
            else:
                yield piece, _contents(piece, _DAMAGED)

    def _load(self, group: Sequence[Piece]) -> dict[Piece, Contents | None]:
        """Contents of pieces of one kind; None for missing ones."""
        found: dict[Piece, Contents | None] = {
            piece: self._recent.get((piece.first, piece.last)) for piece in group if piece.count
        }
        wanted = [piece for piece, contents in found.items() if contents is None]
        keys = [offset_key(piece.first) for piece in wanted]
        try:
            values = self._store.get(LOG if group[0].is_sealed else ROWS, keys) if keys else []
        except DamagedData as error:
            values = [error.found.get(key, _DAMAGED) for key in keys]
        for piece, data in zip(wanted, values, strict=True):
            found[piece] = None if data is None else _contents(piece, data)
        return found

    def _sealed_since(self, frame: Piece) -> Piece | None:
        """The batch that has replaced a frame; the index may not have it yet."""
        try:
            entry = None if frame.is_sealed else self._store.last_before(INDEX, offset_key(frame.first))
            summary = None if entry is None else decode_summary(entry[1])
        except (DamagedData, MsgspecError):
            return None
        if summary is None or summary.last < frame.first:
            return None
        return Piece.of_summary(summary)


def _contents(piece: Piece, data: bytes) -> Contents:
    if not piece.is_sealed:
        return Rows(data)
    from penstock.storage.disk.pieces.arrow_batches import Batch  # noqa: PLC0415 - slow import, not needed for rows

    return Batch(piece, data)


def same_kind(pieces: Sequence[Piece], room_bytes: int) -> list[Piece]:
    """The first pieces of one kind, up to about `room_bytes`: these are loaded together."""
    group: list[Piece] = []
    for piece in pieces:
        if group and (room_bytes <= 0 or piece.is_sealed != group[0].is_sealed):
            break
        group.append(piece)
        room_bytes -= piece.bytes
    return group


class RecentPieces:
    """LRU cache of contents, limited by bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size = 0
        self._contents: OrderedDict[Range, tuple[Contents, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, offsets: Range) -> Contents | None:
        """Contents of these offsets, if cached."""
        with self._lock:
            if offsets not in self._contents:
                return None
            self._contents.move_to_end(offsets)
            return self._contents[offsets][0]

    def put(self, offsets: Range, contents: Contents) -> None:
        """Cache the contents of these offsets."""
        size = contents.nbytes
        with self._lock:
            _, known = self._contents.pop(offsets, (contents, 0))
            self._contents[offsets] = contents, size
            self._size += size - known
            while self._size > self._limit_bytes:
                _, (_, freed) = self._contents.popitem(last=False)
                self._size -= freed


class ExpiryClock:
    """Difference of wall and monotonic clock, by offset."""

    def __init__(self, clock: Clock, first_offset: int) -> None:
        """Args:
        first_offset: the first offset of this process.
        """
        self._clock = clock
        self._started_at = clock.monotonic()
        self._first_offset = first_offset
        self._offsets = [0]
        self._leads = [self._lead()]

    def _lead(self) -> float:
        return self._clock.wall_us() / 1_000_000 - self._clock.monotonic()

    def note(self, offset: int) -> None:
        """Record the current difference of the clocks for messages from this offset on."""
        lead = self._lead()
        if abs(lead - self._leads[-1]) > JUMP_S:
            self._offsets.append(offset)
            self._leads.append(lead)

    def set_expiry(self, runs: Iterable[Run]) -> None:
        """Set `expires_at` of stored runs."""
        for run in runs:
            expires_at = expiry_of(run)
            if expires_at is None:
                continue
            lead = self._leads[bisect_right(self._offsets, run.offset) - 1]
            run.expires_at = expires_at / 1_000_000 - lead
            if run.offset < self._first_offset:
                # A clock that was set back before the start must not prolong the lifetime.
                run.expires_at = min(run.expires_at, self._started_at + run.ttl)
