"""Log side of a read: portions of the log, their parts, and reading a part over HTTP.

A part that is cut off by a broken connection resumes after its last row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.datasource import InputPartition

from penstock.client import Gap, HttpClient, LogPosition, LogRange, LogRanges
from penstock.errors import PenstockError
from penstock.model import Reason
from penstock.spark.connection import BUSY_FOR_S, Backoff, Connection
from penstock.spark.options import EARLIEST, LATEST, MAX_PARTS, PositionSpec
from penstock.spark.source.data_loss import LossPolicy
from penstock.spark.source.positions import cursor_at, position_of
from penstock.spark.source.schema import OFFSET, PAYLOAD
from penstock.wire.arrow import LOG_COLUMNS

MIN_ROWS = 16_384
MIN_BYTES = 1 << 20
"""Ranges with fewer rows and bytes than these limits share a task."""

MAX_PART_BYTES = 256 << 20
"""Parts with more stored bytes are split: a failed part is read again completely."""


class Portion(Struct, frozen=True, kw_only=True):
    """Range of history that is read at once, in parts, with its known gaps."""

    after: str
    until: str
    rows: int
    """Upper bound."""
    bytes: int
    parts: Sequence[InputPartition] = ()
    gaps: Sequence[Gap] = ()

    def join(self, later: "Portion") -> "Portion":
        """Concatenate with the portion that begins where this one ends."""
        return Portion(
            after=self.after,
            until=later.until,
            rows=self.rows + later.rows,
            bytes=self.bytes + later.bytes,
            parts=[*self.parts, *later.parts],
            gaps=[*self.gaps, *later.gaps],
        )


class LiveLog:
    """Log of a server, as seen through topic filters."""

    def __init__(self, connection: Connection, filters: Sequence[str], parallelism: int) -> None:
        self._connection = connection
        self._filters = filters
        self._parallelism = parallelism

    def position(self, at: datetime | str) -> LogPosition:
        """The position of `earliest`, `latest` or a time."""
        return self._connection.retry(lambda client: client.position(at, filters=self._filters))

    def lag(self, after: str) -> tuple[str, int]:
        """The end of the log, and an upper bound of the rows after a cursor."""
        found = self._connection.retry(
            lambda client: client.position(LATEST, after=after, filters=self._filters)
        )
        return found.cursor, found.lag_rows or 0

    def portion(
        self,
        after: PositionSpec,
        until: str | None = None,
        limit_rows: int | None = None,
        limit_bytes: int | None = None,
    ) -> Portion:
        """Rows after a position, up to a cursor or the current end, within limits."""
        found = self._ranges(self._parallelism, after, until, limit_rows, limit_bytes)
        size, ranges = sum(each.bytes for each in found.ranges), found.ranges
        if size > MAX_PART_BYTES * self._parallelism:
            parts = min(-(-size // MAX_PART_BYTES), MAX_PARTS)
            ranges = self._ranges(parts, found.after, found.until).ranges
        return Portion(
            after=found.after,
            until=found.until,
            rows=found.rows,
            bytes=size,
            parts=log_parts(ranges),
            gaps=found.gaps,
        )

    def _ranges(
        self,
        parts: int,
        after: PositionSpec,
        until: str | None,
        limit_rows: int | None = None,
        limit_bytes: int | None = None,
    ) -> LogRanges:
        is_cursor = isinstance(after, str) and after not in (EARLIEST, LATEST)
        return self._connection.retry(
            lambda client: client.ranges(
                parts,
                after=str(after) if is_cursor else None,
                start=None if is_cursor else after,
                until=until,
                filters=self._filters,
                limit_rows=limit_rows,
                limit_bytes=limit_bytes,
            )
        )


@dataclass(frozen=True)
class LogPart(InputPartition):
    """Rows of the log after one cursor, up to another."""

    after: str
    until: str


def log_parts(ranges: Sequence[LogRange]) -> list[LogPart]:
    """Parts to read in parallel; small neighbours are joined, and empty ranges dropped."""
    parts: list[LogPart] = []
    after, rows, size = "", 0, 0
    for each in ranges:
        after = after or each.after
        rows, size = rows + each.rows, size + each.bytes
        if rows >= MIN_ROWS or size >= MIN_BYTES:
            parts.append(LogPart(after, each.until))
            after, rows, size = "", 0, 0
    if rows:
        parts.append(LogPart(after, ranges[-1].until))
    return parts


def read_log_part(
    part: LogPart,
    connection: Connection,
    filters: Sequence[str],
    columns: Sequence[str],
    losses: LossPolicy,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a part; gaps are declared at the end.

    Raises:
        DataLoss: rows are missing, and the policy is to fail.
        PenstockError: the server refused the request, or was unavailable for too long.
    """
    reading = _Reading(part, connection, filters, columns)
    yield from reading.batches()
    losses.declare(reading.gaps(), part.after, part.until)


class _Reading:
    """Read of one part, which resumes after failures."""

    def __init__(
        self, part: LogPart, connection: Connection, filters: Sequence[str], columns: Sequence[str]
    ) -> None:
        self._part = part
        self._connection = connection
        self._filters = filters
        self._columns = asked_columns(columns)
        self._end = position_of(part.until)
        self._gaps: list[Gap] = []
        self._first_row: int | None = None
        self._unproved = part.after
        """End of the rows that were read without a statement, because the read was cut off."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, each once."""
        patience = Backoff(self._connection.retry_for_s, BUSY_FOR_S)
        position = self._part.after
        while True:
            try:
                read = self._connection.client().read_log(
                    after=position, until=self._part.until, filters=self._filters, columns=self._columns
                )
                with read:
                    for batch in read:
                        patience.reset()
                        offsets = batch.column(OFFSET)
                        position = cursor_at(self._end, offsets[-1].as_py())
                        if self._first_row is None:
                            self._first_row = offsets[0].as_py()
                        yield batch
                self._gaps += read.statement.gaps
                return
            except PenstockError as error:
                patience.wait(error)
                self._unproved = position

    def gaps(self) -> list[Gap]:
        """Missing offsets of the part; call it after all rows were read."""
        if self._unproved == self._part.after:
            return self._gaps
        before = self._connection.retry(self._look_again)
        return [*(left for gap in before for left in self._unread(gap)), *self._gaps]

    def _look_again(self, client: HttpClient) -> Sequence[Gap]:
        """Gaps between the beginning and the position where a read was cut off."""
        with client.read_log(
            after=self._part.after, until=self._unproved, filters=self._filters, columns=[OFFSET]
        ) as read:
            for _ in read:
                pass
        return read.statement.gaps

    def _unread(self, gap: Gap) -> Iterator[Gap]:
        """A gap without offsets that were read before they left: retention removes the oldest first."""
        if gap.reason != Reason.RETENTION or self._first_row is None:
            yield gap
        elif gap.first < self._first_row:
            yield Gap(gap.first, min(gap.last, self._first_row - 1), gap.reason)


def asked_columns(columns: Sequence[str]) -> Sequence[str] | None:
    """The columns to request from the server; None for all.

    The server sends whole batches as they are stored, but repacks a selection of columns. That pays off only
    without the payload, which is most of a batch.
    """
    return None if PAYLOAD in columns or len(columns) == len(LOG_COLUMNS) else columns
