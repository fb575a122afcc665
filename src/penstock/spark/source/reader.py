"""Readers that Spark calls: a batch read between two positions, and a stream of micro-batches.

Both plan on the driver and read parts on workers. Log batches have dictionary columns and from one to fifty
thousand rows; Spark gets plain columns, in batches of a useful size.

A trigger of a stream costs one request to the server, or two if a limit leaves rows for later: `partitions`
reuses what `latestOffset` planned.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.spark.connection import StreamHold
from penstock.spark.errors import InvalidOption, without_traceback
from penstock.spark.options import LATEST, ReadOptions
from penstock.spark.source.data_loss import LossPolicy
from penstock.spark.source.log_scan import LogPart, Portion, read_log_part
from penstock.spark.source.payloads import Payloads
from penstock.spark.source.planner import Planner
from penstock.spark.source.positions import cursor_in, offset_of, position_of
from penstock.spark.source.schema import DEAD_LETTER, OFFSET, PAYLOAD, VALUE, log_schema
from penstock.wire.arrow import LOG_COLUMNS

MIN_ROWS = 4_096
MAX_ROWS = 16_384
MAX_BYTES = 16 << 20
"""A batch of this size is passed on, however few rows it has."""
IDLE_S = 10.0
"""Time that a stream stays at its position while no message matches its filters. Then it advances anyway:
retention would remove its position from the log, which would look like a data loss.
"""
LAG = "lagRows"


class BatchReader(DataSourceReader):
    """Batch read: planned once on the driver, read on workers."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        """The parts of the whole read."""
        options, planner = self._options, Planner(self._options)
        until = None if options.ending == LATEST else planner.cursor(options.ending)
        portion = planner.portion(options.starting, until)
        planner.accept(portion)
        return list(portion.parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        return read_part(partition, self._options, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream: planned on the driver as long as the query runs, read on workers with a copy of this object."""

    def __init__(
        self, options: ReadOptions, schema: StructType, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._schema = schema
        self._now = now
        self._made: Planner | None = None
        self._hold: StreamHold | None = None
        if options.hold is not None and options.connection is not None:
            self._hold = StreamHold(
                options.hold, options.hold_lapse_s, options.connection, options.filters, now=now
            )
        self._initial: str | None = None
        self._target: str | None = None
        """End position of a run with `availableNow`."""
        self._planned: tuple[str, str, Portion] | None = None
        """Start and end of the next micro-batch, and its content."""
        self._reached: str | None = None
        self._has_more = False
        self._moved = now()

    # Called by Spark, in this order

    @without_traceback
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the names are Spark's
        """Start of a query without a checkpoint; cached, as Spark calls it repeatedly and the log grows."""
        if self._initial is None:
            self._initial = self._planner.cursor(self._options.starting)
        self._keep(self._initial)
        return offset_of(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit set by the options; `latestOffset` applies the second one, if both are set."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of this run."""
        self._target = self._planner.cursor(self._options.ending)

    @without_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """End of the next micro-batch; equals its start if there is nothing to read."""
        if self._options.ending != LATEST and self._target is None:
            raise InvalidOption("endingOffsets needs a stream that ends: use trigger(availableNow=True)")
        after = self._reached = cursor_in(start)
        self._keep(after)
        if self._is_at_target(after):
            return start
        is_limited = not isinstance(limit, ReadAllAvailable)
        rows = self._options.max_rows if is_limited else None
        size = self._options.max_bytes if is_limited else None
        portion = self._planner.portion(after, self._target, rows, size)
        self._has_more = is_limited or self._target is not None
        if not self._is_worth_it(after, portion):
            return start
        self._moved = self._now()
        self._reached = portion.until
        self._planned = after, portion.until, portion
        return offset_of(portion.until)

    @without_traceback
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """End of the log, and the number of rows after the last planned micro-batch."""
        if self._reached is None:
            return None
        head, lag = self._planner.lag(self._reached) if self._has_more else (self._reached, 0)
        return {**offset_of(head), LAG: lag}

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts of a micro-batch; after a restart, of one that was planned before."""
        after, until = cursor_in(start), cursor_in(end)
        if after == until:
            return []
        if self._planned is not None and self._planned[:2] == (after, until):
            portion = self._planned[2]
        else:
            self._keep(after)
            portion = self._planner.portion(after, until)
        self._planner.accept(portion)
        return list(portion.parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        return read_part(partition, self._options, self._schema)

    @without_traceback
    def commit(self, end: dict[str, Any]) -> None:
        """Release the log up to this position: it is processed."""
        if self._hold is not None:
            self._hold.move(self._planner.release_point(cursor_in(end)))

    def stop(self) -> None:
        """Close the connection. A hold stays for the next run, and lapses if there is none."""
        if self._options.connection is not None:
            self._options.connection.client().close()

    # Internals

    @property
    def _planner(self) -> Planner:
        if self._made is None:
            self._made = Planner(self._options)
        return self._made

    def _keep(self, cursor: str) -> None:
        if self._hold is not None:
            self._hold.keep(self._planner.release_point(cursor))

    def _is_at_target(self, after: str) -> bool:
        if self._target is None:
            return False
        position, target = position_of(after), position_of(self._target)
        # A position of an earlier epoch may be lost in a crash: planning finds out.
        return position.offset >= target.offset and position.epoch >= target.epoch

    def _is_worth_it(self, after: str, portion: Portion) -> bool:
        """A portion makes a micro-batch: it has rows or gaps, or it is time to advance."""
        position, end = position_of(after), position_of(portion.until)
        if end.offset <= position.offset and end.epoch == position.epoch:
            return bool(portion.gaps)
        is_due = self._target is not None or self._now() - self._moved >= IDLE_S
        return bool(portion.rows or portion.gaps) or is_due


def read_part(part: InputPartition, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Read the rows of a part on a worker, in batches for Spark."""
    projection = Projection(schema)
    return resize(projection.apply(batch) for batch in _read_rows(part, options, projection))


class Projection:
    """Mapping from columns of the log to the columns of a read."""

    def __init__(self, schema: StructType) -> None:
        self.schema = to_arrow_schema(schema, timezone="UTC")
        self._columns = [name for name in schema.names if name not in (VALUE, DEAD_LETTER)]
        self._payloads: Payloads | None = None
        if VALUE in schema.names:
            self._payloads = Payloads(schema[VALUE].dataType, self.schema.field(VALUE).type)
        needed = {*self._columns, OFFSET, *([] if self._payloads is None else [PAYLOAD])}
        self.needed = to_arrow_schema(
            log_schema(tuple(name for name in LOG_COLUMNS if name in needed)), timezone="UTC"
        )
        """Columns to read from the log; always with `offset`, from which a read resumes after a failure."""

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows with the columns of this read."""
        plain = {name: _plain(batch.column(name), self.schema.field(name).type) for name in self._columns}
        if self._payloads is not None:
            plain[VALUE], plain[DEAD_LETTER] = self._payloads.parse(batch.column(PAYLOAD))
        return pa.RecordBatch.from_arrays([plain[name] for name in self.schema.names], schema=self.schema)


def _read_rows(
    part: InputPartition, options: ReadOptions, projection: Projection
) -> Iterator[pa.RecordBatch]:
    if isinstance(part, LogPart):
        assert options.connection is not None
        losses = LossPolicy(options.fail_on_data_loss, options.missing)
        yield from read_log_part(part, options.connection, options.filters, projection.needed.names, losses)
    elif type(part) is not InputPartition:  # what Spark passes if there are no parts
        from penstock.spark.source.lake_scan import LakePart, read_lake_part  # noqa: PLC0415 - seldom

        assert isinstance(part, LakePart)
        yield from read_lake_part(part, options.filters, projection.needed)


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type.equals(kind) else column.cast(kind)


def resize(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a useful size; the last one may be small."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows >= MIN_ROWS and not waiting:
            yield from _slices(batch)
            continue
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= MIN_ROWS or size >= MAX_BYTES:
            yield from _slices(_joined(waiting))
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    parts = max(-(-batch.num_rows // MAX_ROWS), min(-(-batch.nbytes // MAX_BYTES), batch.num_rows))
    step = -(-batch.num_rows // parts)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
