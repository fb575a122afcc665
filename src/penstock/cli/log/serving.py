"""One read of a log: batches in the order of their offsets, and at its end a statement.

What is stored is served, expired or not: whoever looks into a log wants to see what is there, and
`expires_at` is one of the columns.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock.cli.log.asking import Request, find_stretch
from penstock.cli.log.sequences import Sequences
from penstock.cli.log.snapshot import CHUNK_BYTES, Snapshot
from penstock.cli.progress import Advance
from penstock.core.ports import Gap
from penstock.core.statement import Missing, Statement
from penstock.model import Reason
from penstock.storage.disk.columns import SCHEMA, decode_batch


class Serving:
    """What a request finds in a snapshot, as far as it has been read."""

    def __init__(self, snapshot: Snapshot, request: Request) -> None:
        """Find the place to begin.

        Raises:
            InvalidCursor: there is no such place.
        """
        self._snapshot = snapshot
        self._request = request
        stretch = find_stretch(snapshot, request)
        self.after = self.position = stretch.after
        self.until = stretch.until
        self.served = 0
        self._lost = stretch.gaps
        self._gaps: list[Gap] = []
        self._columns: list[str] | None = None
        self._is_past_last = False
        self._sequences: Sequences | None = None
        if request.topic is not None:
            before = 0 if request.first is not None else stretch.after
            self._sequences = Sequences(request.topic, request.first, before, self._explain)

    def batches(self, advance: Advance = lambda _: None) -> Iterator[pa.RecordBatch]:
        """What is asked for and was not served yet, one batch after another.

        Args:
            advance: told how many offsets it has come by now. If it raises, the statement is right too.
        """
        while self.position < self.until:
            for batch in self._read_on():
                rows = self._choose(batch)
                if rows.num_rows:
                    self._count(rows)
                    yield rows
                if (end := self._end_in(batch, rows)) is not None:
                    self._go_back(end)
                    self.until = end
                    break
                self.position = batch.column("offset")[-1].as_py()
                advance(self.position - self.after)
            advance(self.position - self.after)

    def _read_on(self) -> Iterator[pa.RecordBatch]:
        """The next batches of the topics that are asked for."""
        reader, wanted = self._snapshot.reader, self._request.wanted
        span = reader.arrow(self.position, self.until, CHUNK_BYTES, wanted, self._columns)
        self._gaps += span.gaps
        reached = self.position
        for stream in span.streams:  # unpacked one by one: they may be far larger than they seem
            try:
                batch = decode_batch(stream)
            except ValueError:
                if self._columns is not None:
                    raise
                # Nobody has looked at it yet, because all of it was asked for. If columns are, it is a gap.
                self._columns = SCHEMA.names
                self._go_back(reached)
                return
            reached = batch.column("offset")[-1].as_py()
            yield batch
        self.position = span.until

    def follow(self) -> None:
        """Go on to where the log ends now."""
        self.until = self._snapshot.last_offset

    def statement(self) -> Statement:
        """What was served up to here, what is missing, where to go on."""
        snapshot = self._snapshot
        return Statement(
            snapshot.cursor(self.after),
            snapshot.cursor(self.position),
            self.served,
            self._missing(),
            self.position >= snapshot.last_offset,
            (*self._lost, *(gap for gap in self._gaps_until(self.position) if gap.last > self._known)),
        )

    @property
    def _known(self) -> int:
        """The offset up to which sequences tell what is missing: of one topic, and to its last message."""
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

    def _choose(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the time and the sequences that are asked for, no more than are still to come."""
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
        """The offset at which all that is asked for was served, if it lies in this batch."""
        last = self._request.last
        if self.served == self._request.limit:
            return int(rows.column("offset")[-1].as_py())
        if last is None or pc.max(batch.column("sequence")).as_py() < last:
            return None
        self._is_past_last = True
        offsets = _between(batch, "sequence", None, last + 1).column("offset")
        return int(offsets[-1].as_py() if len(offsets) else batch.column("offset")[0].as_py() - 1)

    def _go_back(self, offset: int) -> None:
        """Forget what was found after an offset."""
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


def _between(batch: pa.RecordBatch, column: str, least: int | None, end: int | None) -> pa.RecordBatch:
    """The rows whose number is not below `least` and below `end`."""
    if least is not None:
        batch = batch.filter(pc.greater_equal(batch.column(column).cast(pa.int64()), least))
    if end is not None:
        batch = batch.filter(pc.less(batch.column(column).cast(pa.int64()), end))
    return batch
