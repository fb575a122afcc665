"""The log as planning sees it: places in it, and stretches of it in parts."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from pyspark.sql.datasource import InputPartition

from penstock.client import Gap, LogPosition, LogRanges
from penstock.pipeline.source.connection import Connection
from penstock.pipeline.source.log_part import log_parts
from penstock.pipeline.source.options import EARLIEST, LATEST, Place

MOST_PART_BYTES = 256 << 20
"""Parts that have more bytes than that, as stored, are split: one that fails is read again as a whole."""
MOST_PARTS = 10_000


class Portion(Struct, frozen=True, kw_only=True):
    """A stretch that is read at once, in parts, and what is known to be missing of it."""

    after: str
    until: str
    rows: int
    """There may be fewer, but not more."""
    bytes: int
    parts: Sequence[InputPartition] = ()
    gaps: Sequence[Gap] = ()

    def join(self, later: "Portion") -> "Portion":
        """This portion and the one that begins where it ends, as one."""
        return Portion(
            after=self.after,
            until=later.until,
            rows=self.rows + later.rows,
            bytes=self.bytes + later.bytes,
            parts=[*self.parts, *later.parts],
            gaps=[*self.gaps, *later.gaps],
        )


class LiveLog:
    """What a server says of its log, to somebody who wants the topics of some filters."""

    def __init__(self, connection: Connection, filters: Sequence[str], parallelism: int) -> None:
        self._connection = connection
        self._filters = filters
        self._parallelism = parallelism

    def position(self, at: datetime | str) -> LogPosition:
        """`earliest`, `latest` or a time as a place."""
        return self._connection.insist(lambda client: client.position(at, filters=self._filters))

    def lag(self, after: str) -> tuple[str, int]:
        """Where the log ends, and how many rows a cursor is behind that, at most."""
        found = self._connection.insist(
            lambda client: client.position(LATEST, after=after, filters=self._filters)
        )
        return found.cursor, found.lag_rows or 0

    def portion(
        self,
        after: Place,
        until: str | None = None,
        limit_rows: int | None = None,
        limit_bytes: int | None = None,
    ) -> Portion:
        """What lies after a place, up to a cursor or to where the log ends now, and within some limits."""
        found = self._ranges(self._parallelism, after, until, limit_rows, limit_bytes)
        size, ranges = sum(each.bytes for each in found.ranges), found.ranges
        if size > MOST_PART_BYTES * self._parallelism:
            parts = min(-(-size // MOST_PART_BYTES), MOST_PARTS)
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
        after: Place,
        until: str | None,
        limit_rows: int | None = None,
        limit_bytes: int | None = None,
    ) -> LogRanges:
        is_cursor = isinstance(after, str) and after not in (EARLIEST, LATEST)
        return self._connection.insist(
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
