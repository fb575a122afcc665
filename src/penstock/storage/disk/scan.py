"""Scan of a snapshot: Arrow batches in offset order, and a statement of what is missing at the end.

A scan returns everything that is stored, expired or not: `expires_at` is one of the columns.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from penstock.common.cursor import Cursor
from penstock.common.statement import Gap, Missing, Statement
from penstock.common.topics import matches
from penstock.core.ports.log import Wanted
from penstock.errors import InvalidCursor
from penstock.model import Reason
from penstock.storage.disk.pieces.arrow_columns import SCHEMA, decode_batch
from penstock.storage.disk.snapshot import CHUNK_BYTES, Snapshot

Explain = Callable[[int, int], Reason]
"""Returns why messages between two offsets are missing."""


class Request(Struct, frozen=True, kw_only=True):
    """Selection of messages; without any field, everything that is stored."""

    after: str | None = None
    """A cursor; the scan begins behind it."""
    from_offset: int | None = None
    topic: str | None = None
    first: int | None = None
    last: int | None = None
    """Sequences of the topic."""
    since: int | None = None
    until: int | None = None
    """Times in microseconds since 1970."""
    filters: tuple[str, ...] = ()
    limit: int | None = None

    @property
    def wanted(self) -> Wanted | None:
        """Predicate of the selected topics; None if all are selected."""
        if self.topic is not None:
            return self.topic.__eq__
        return (lambda topic: any(matches(each, topic) for each in self.filters)) if self.filters else None


class OffsetRange(Struct, frozen=True):
    """Offsets that a request covers, and the gaps known to lie before them."""

    after: int
    until: int
    gaps: tuple[Gap, ...] = ()


class Scan:
    """One read of a snapshot; it may be continued after the snapshot was refreshed."""

    def __init__(self, snapshot: Snapshot, request: Request) -> None:
        """Find the offset to begin at.

        Raises:
            InvalidCursor: the cursor is not of this log, or the log does not reach that far.
        """
        self._snapshot = snapshot
        self._request = request
        covered = find_range(snapshot, request)
        self.after = self.position = covered.after
        self.until = covered.until
        self.served = 0
        self._lost = covered.gaps
        self._gaps: list[Gap] = []
        self._columns: list[str] | None = None
        self._is_past_last = False
        self._sequences: SequenceTracker | None = None
        if request.topic is not None:
            before = 0 if request.first is not None else covered.after
            self._sequences = SequenceTracker(request.topic, request.first, before, self._explain)

    def batches(self, advance: Callable[[int], None] = lambda _: None) -> Iterator[pa.RecordBatch]:
        """The selected messages not returned before, batch by batch.

        Args:
            advance: called with the number of offsets read so far. If it raises, the statement stays correct.
        """
        while self.position < self.until:
            for batch in self._read_chunk():
                rows = self._select(batch)
                if rows.num_rows:
                    self._count(rows)
                    yield rows
                if (end := self._end_in(batch, rows)) is not None:
                    self._rewind(end)
                    self.until = end
                    break
                self.position = batch.column("offset")[-1].as_py()
                advance(self.position - self.after)
            advance(self.position - self.after)

    def follow(self) -> None:
        """Extend the scan to the present end of the snapshot."""
        self.until = self._snapshot.last_offset

    def statement(self) -> Statement:
        """Statement of this scan so far: messages served, what is missing, the cursor to continue at."""
        snapshot = self._snapshot
        return Statement(
            snapshot.cursor(self.after),
            snapshot.cursor(self.position),
            self.served,
            self._missing(),
            self.position >= snapshot.last_offset,
            (*self._lost, *(gap for gap in self._gaps_until(self.position) if gap.last > self._known)),
        )

    def _read_chunk(self) -> Iterator[pa.RecordBatch]:
        """The next batches of the selected topics."""
        reader, wanted = self._snapshot.reader, self._request.wanted
        span = reader.arrow(self.position, self.until, CHUNK_BYTES, wanted, self._columns)
        self._gaps += span.gaps
        reached = self.position
        for stream in span.streams:  # unpacked one by one: they may be far larger than their stored form
            try:
                batch = decode_batch(stream)
            except ValueError:
                if self._columns is not None:
                    raise
                # With all columns the reader passes batches on undecoded. Named columns are decoded there,
                # so that a damaged batch becomes a gap.
                self._columns = SCHEMA.names
                self._rewind(reached)
                return
            reached = batch.column("offset")[-1].as_py()
            yield batch
        self.position = span.until

    @property
    def _known(self) -> int:
        """Offset up to which sequences report what is missing: of one topic, and to its last message."""
        if self._sequences is None:
            return 0
        return self.position if self._is_past_last else self._sequences.offset

    def _missing(self) -> tuple[Missing, ...]:
        request, last = self._request, 0
        if self._sequences is None or request.topic is None:
            return ()
        if self._is_past_last and request.last is not None:
            last = request.last
        elif self.position >= self._snapshot.last_offset and request.until is None:
            last = self._snapshot.last_sequence(request.topic)
            last = last if request.last is None else min(last, request.last)
        return self._sequences.missing(last, self.position + 1)

    def _select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the requested times and sequences, up to the limit."""
        request = self._request
        end = None if request.last is None else request.last + 1
        rows = _between(
            _between(batch, "published_at", request.since, request.until), "sequence", request.first, end
        )
        return rows if request.limit is None else rows.slice(0, request.limit - self.served)

    def _count(self, rows: pa.RecordBatch) -> None:
        self.served += rows.num_rows
        if self._sequences is not None:
            self._sequences.add(rows.column("sequence").to_pylist(), rows.column("offset").to_pylist())

    def _end_in(self, batch: pa.RecordBatch, rows: pa.RecordBatch) -> int | None:
        """The offset that completes the request, if it lies in this batch."""
        last = self._request.last
        if self.served == self._request.limit:
            return int(rows.column("offset")[-1].as_py())
        if last is None or pc.max(batch.column("sequence")).as_py() < last:
            return None
        self._is_past_last = True
        offsets = _between(batch, "sequence", None, last + 1).column("offset")
        return int(offsets[-1].as_py() if len(offsets) else batch.column("offset")[0].as_py() - 1)

    def _rewind(self, offset: int) -> None:
        """Drop the gaps found after an offset."""
        self.position = offset
        self._gaps = self._gaps_until(offset)

    def _gaps_until(self, offset: int) -> list[Gap]:
        return [
            Gap(gap.first, min(gap.last, offset), gap.reason) for gap in self._gaps if gap.first <= offset
        ]

    def _explain(self, after: int, before: int) -> Reason:
        for gap in (*self._gaps, *self._snapshot.damage):
            if gap.first < before and gap.last > after:
                return gap.reason
        return Reason.RETENTION if after + 1 < self._snapshot.first_offset else Reason.NEVER_STORED


class SequenceTracker:
    """Gap detection by sequence: follows a read of one topic and notes every hole with its reason."""

    def __init__(self, topic: str, first: int | None, after: int, explain: Explain) -> None:
        """Begin.

        Args:
            first: the first requested sequence; None for the first that is there.
            after: the offset after which the read begins.
        """
        self._topic = topic
        self._expected = first
        self.offset = after
        """Offset of the last message read."""
        self._explain = explain
        self._missing: list[Missing] = []

    def add(self, sequences: Iterable[int], offsets: Iterable[int]) -> None:
        """Record messages that were read."""
        for sequence, offset in zip(sequences, offsets, strict=True):
            self._note(sequence, offset)
            self._expected, self.offset = sequence + 1, offset

    def missing(self, last: int, before: int) -> tuple[Missing, ...]:
        """All holes, given that the topic had sequences up to `last` before an offset."""
        noted = len(self._missing)
        self._note(last + 1, before)
        found = tuple(self._missing)
        del self._missing[noted:]  # a read that continues may still meet them
        return found

    def _note(self, sequence: int, before: int) -> None:
        if sequence <= (self._expected or 1):
            return
        reason = self._explain(self.offset, before)
        if self._expected is not None or reason is Reason.DAMAGED:  # what was before was not requested
            self._missing.append(Missing(self._topic, self._expected, sequence - 1, reason))


def find_range(snapshot: Snapshot, request: Request) -> OffsetRange:
    """The offsets of a log that a request covers.

    Raises:
        InvalidCursor: the cursor is not of this log, or the log does not reach that far.
    """
    after, gaps = _find_start(snapshot, request)
    newest = snapshot.last_offset
    if after > newest:
        raise InvalidCursor(f"the log ends with offset {newest}")
    until = newest if request.until is None else _last_before(snapshot, request.until)
    return OffsetRange(after, max(after, min(until, newest)), gaps)


def _find_start(snapshot: Snapshot, request: Request) -> tuple[int, tuple[Gap, ...]]:
    """The offset after which the range begins, and the gaps before it."""
    if request.after is not None:
        return _position_of(snapshot, Cursor.decode(request.after))
    if request.from_offset is not None:
        return request.from_offset - 1, ()
    if request.since is not None:
        return _first_since(snapshot, request.since), ()
    if request.topic is not None and request.first is not None:
        found = snapshot.reader.find_sequence(request.topic, request.first)
        if found is not None or not snapshot.damage:  # otherwise it may have been in a damaged part
            return min(snapshot.last_offset, snapshot.last_offset if found is None else found), ()
    return snapshot.first_offset - 1, ()


def _position_of(snapshot: Snapshot, cursor: Cursor) -> tuple[int, tuple[Gap, ...]]:
    """The offset of a cursor; one beyond the commits of its epoch is cut back to the last of them."""
    position = cursor.position_in(snapshot.log_id)
    if position is None:
        raise InvalidCursor("this cursor is of another log")
    end = snapshot.end_of(position.epoch) if position.epoch < snapshot.epoch else None
    offset = position.offset if end is None else min(position.offset, end)
    if position.epoch > snapshot.epoch or offset > snapshot.last_offset:
        raise InvalidCursor("this cursor is ahead of the log")
    lost = Gap(offset + 1, position.offset, Reason.LOST_UNCOMMITTED)
    return offset, (lost,) if offset < position.offset else ()


def _first_since(snapshot: Snapshot, since: int) -> int:
    """The offset after which everything lies that is not older than a time."""
    pieces = snapshot.pieces()
    if not pieces or pieces[0].began_at > since:
        return 0  # removed messages may be among those requested
    for piece, following in pairwise(pieces):
        if following.began_at >= since:
            return piece.first - 1
    return pieces[-1].first - 1


def _last_before(snapshot: Snapshot, until: int) -> int:
    """The last offset that can be from before a time."""
    earlier = (piece.last for piece in reversed(snapshot.pieces()) if piece.began_at < until)
    return next(earlier, 0)


def _between(batch: pa.RecordBatch, column: str, least: int | None, end: int | None) -> pa.RecordBatch:
    """The rows with `least <= column < end`."""
    if least is not None:
        batch = batch.filter(pc.greater_equal(batch.column(column).cast(pa.int64()), least))
    if end is not None:
        batch = batch.filter(pc.less(batch.column(column).cast(pa.int64()), end))
    return batch
