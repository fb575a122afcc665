"""What one task reads of the log: rows between two cursors, over a connection that may break on the way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.client import Gap, HttpClient, LogRange
from penstock.core.archive import LOG_COLUMNS
from penstock.errors import PenstockError
from penstock.pipeline.source.connection import BUSY_FOR_S, Connection, Patience
from penstock.pipeline.source.missing import Losses
from penstock.pipeline.source.offsets import cursor_at, position_of
from penstock.pipeline.source.schema import OFFSET, PAYLOAD

LEAST_ROWS = 16_384
LEAST_BYTES = 1 << 20
"""A part that has fewer rows and fewer bytes than that is not worth a task of its own."""

_RETENTION = "retention"


@dataclass(frozen=True)
class LogPart(InputPartition):
    """Rows of the log after one cursor, up to another."""

    after: str
    until: str


def log_parts(ranges: Sequence[LogRange]) -> list[LogPart]:
    """Parts to be read side by side; small ones that follow one another become one, empty ones nothing."""
    parts: list[LogPart] = []
    after, rows, size = "", 0, 0
    for each in ranges:
        after = after or each.after
        rows, size = rows + each.rows, size + each.bytes
        if rows >= LEAST_ROWS or size >= LEAST_BYTES:
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
    losses: Losses,
) -> Iterator[pa.RecordBatch]:
    """The rows of a part as the log has them; whatever is missing of it was declared when this ends.

    Raises:
        DataLoss: something is missing, and that is not accepted.
        PenstockError: the server cannot be asked, or not for so long.
    """
    reading = _Reading(part, connection, filters, columns)
    yield from reading.batches()
    losses.declare(reading.gaps(), part.after, part.until)


class _Reading:
    """One part being read, from where it was cut off if it was."""

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
        """What lies between the beginning and here was read, but no statement speaks of it."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, each once."""
        patience = Patience(self._connection.retry_for_s, BUSY_FOR_S)
        place = self._part.after
        while True:
            try:
                read = self._connection.client().read_log(
                    after=place, until=self._part.until, filters=self._filters, columns=self._columns
                )
                with read:
                    for batch in read:
                        patience.reset()
                        offsets = batch.column(OFFSET)
                        place = cursor_at(self._end, offsets[-1].as_py())
                        if self._first_row is None:
                            self._first_row = offsets[0].as_py()
                        yield batch
                self._gaps += read.statement.gaps
                return
            except PenstockError as error:
                patience.wait(error)
                self._unproved = place

    def gaps(self) -> list[Gap]:
        """What is missing of the part; known when all rows are read."""
        if self._unproved == self._part.after:
            return self._gaps
        before = self._connection.insist(self._look_again)
        return [*(left for gap in before for left in self._unread(gap)), *self._gaps]

    def _look_again(self, client: HttpClient) -> Sequence[Gap]:
        """The gaps between the beginning and where a read was cut off."""
        with client.read_log(
            after=self._part.after, until=self._unproved, filters=self._filters, columns=[OFFSET]
        ) as read:
            for _ in read:
                pass
        return read.statement.gaps

    def _unread(self, gap: Gap) -> Iterator[Gap]:
        """A gap, without what left only after it was read: retention takes the oldest first."""
        if gap.reason != _RETENTION or self._first_row is None:
            yield gap
        elif gap.first < self._first_row:
            yield Gap(gap.first, min(gap.last, self._first_row - 1), gap.reason)


def asked_columns(columns: Sequence[str]) -> Sequence[str] | None:
    """What to ask the server for.

    Whole batches leave it as they are stored, while a choice of columns is packed anew: that is worth it only
    if it leaves the payload out, which is most of a batch.
    """
    return None if PAYLOAD in columns or len(columns) == len(LOG_COLUMNS) else columns
