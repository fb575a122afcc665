"""A read that goes on: micro-batches from one cursor to the next.

Each trigger costs one request to the server, or two if a limit leaves something for later: what
`latestOffset` finds out is what `partitions` needs.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.pipeline.source.errors import InvalidOption, plainly
from penstock.pipeline.source.hold import StreamHold
from penstock.pipeline.source.live import Portion
from penstock.pipeline.source.offsets import cursor_in, offset_of, position_of
from penstock.pipeline.source.options import LATEST, ReadOptions
from penstock.pipeline.source.planning import Planner
from penstock.pipeline.source.reading import read_part

IDLE_S = 10.0
"""How long a stream stays where it is while others publish and nothing is for it. Then it gets on all the
same: what it stays behind would leave the log some day, and look like a loss."""

LAG = "lagRows"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, for as long as the query lives; reads on workers, which have copies of it."""

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
        """Where a run that ends by itself ends."""
        self._planned: tuple[str, str, Portion] | None = None
        """From where to where the next micro-batch goes, and what it is."""
        self._reached: str | None = None
        self._has_more = False
        self._moved = now()

    # What Spark asks, in its order

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the names are Spark's
        """Where a query that has no checkpoint begins; Spark asks more than once, and the end moves on."""
        if self._initial is None:
            self._initial = self._planner.cursor(self._options.starting)
        self._keep(self._initial)
        return offset_of(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options say; where they say two things, the other one is known here."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix where this run ends."""
        self._target = self._planner.cursor(self._options.ending)

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends; where it begins, if there is nothing for it."""
        if self._options.ending != LATEST and self._target is None:
            raise InvalidOption(
                "endingOffsets is for reads that end: give the stream trigger(availableNow=True)"
            )
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

    @plainly
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the log ends, and how many rows there are behind the micro-batch that was planned last."""
        if self._reached is None:
            return None
        head, lag = self._planner.lag(self._reached) if self._has_more else (self._reached, 0)
        return {**offset_of(head), LAG: lag}

    @plainly
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

    @plainly
    def commit(self, end: dict[str, Any]) -> None:
        """What lies before this is done with, and need not stay in the log."""
        if self._hold is not None:
            self._hold.move(self._planner.kept_until(cursor_in(end)))

    def stop(self) -> None:
        """Let go of the connection. A hold stays: it is for the next run, and lapses if there is none."""
        if self._options.connection is not None:
            self._options.connection.client().close()

    # How it is answered

    @property
    def _planner(self) -> Planner:
        if self._made is None:
            self._made = Planner(self._options)
        return self._made

    def _keep(self, cursor: str) -> None:
        if self._hold is not None:
            self._hold.keep(self._planner.kept_until(cursor))

    def _is_at_target(self, after: str) -> bool:
        if self._target is None:
            return False
        place, target = position_of(after), position_of(self._target)
        # A place of an epoch before may be one that a crash took: whoever plans finds that out.
        return place.offset >= target.offset and place.epoch >= target.epoch

    def _is_worth_it(self, after: str, portion: Portion) -> bool:
        """Whether a portion makes a micro-batch: not if it holds nothing, unless it is time to get on."""
        place, end = position_of(after), position_of(portion.until)
        if end.offset <= place.offset and end.epoch == place.epoch:
            return bool(portion.gaps)
        is_due = self._target is not None or self._now() - self._moved >= IDLE_S
        return bool(portion.rows or portion.gaps) or is_due
