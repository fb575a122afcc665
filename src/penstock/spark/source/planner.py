"""Planner of a read: one table from the lake and the log after it, cut into parts.

Archived rows come from the lake, the rest from the log; each offset has one source. The source makes no
difference to the rows, so the border may move between two plans.
"""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.common.cursor import Position
from penstock.errors import InvalidCursor, InvalidRequest
from penstock.model import Reason
from penstock.spark.options import EARLIEST, LATEST, PositionSpec, ReadOptions
from penstock.spark.source.data_loss import LossPolicy
from penstock.spark.source.log_scan import LiveLog, Portion
from penstock.spark.source.positions import cursor_at, position_of

if TYPE_CHECKING:
    from penstock.spark.source.lake_scan import ArchivedRows


class Planner:
    """Plans one read, on the driver."""

    def __init__(self, options: ReadOptions) -> None:
        connection = options.connection
        parallelism = options.parallelism
        self._live = None if connection is None else LiveLog(connection, options.filters, parallelism)
        self._lake = _lake_of(options)
        self._losses = LossPolicy(options.fail_on_data_loss, options.missing)
        self._losses.prepare()

    def cursor(self, position: PositionSpec) -> str:
        """The cursor of a position.

        Raises:
            InvalidCursor: only a lake is read, and nothing is archived yet.
        """
        if isinstance(position, str) and position not in (EARLIEST, LATEST):
            return position
        lake, end = self._lake, self._lake_end()
        if lake is None or end is None or (position == LATEST and self._live is not None):
            return self._log.position(position).cursor
        found = None if position == LATEST else lake.find(position)
        lake.accept_expired()
        is_inside = found is not None and not lake.begin
        if self._live is not None and not is_inside:  # it may lie before the lake, or after it
            there = self._live.position(position)
            if there.offset < lake.begin or (found is None and there.offset > end.offset):
                return there.cursor
        return cursor_at(end, end.offset if found is None else found)

    def portion(
        self,
        after: PositionSpec,
        until: str | None = None,
        limit_rows: int | None = None,
        limit_bytes: int | None = None,
    ) -> Portion:
        """Rows after a position, up to a cursor or the current end, within limits.

        A portion within limits still makes progress, if there are rows.
        """
        if self._lake is None:
            found = self._log.portion(after, until, limit_rows, limit_bytes)
            is_cursor = isinstance(after, str) and after not in (EARLIEST, LATEST)
            return (
                replace(found, after=after) if is_cursor else found
            )  # a loss belongs to the epoch of the reader
        begin = self.cursor(after)
        if self._is_old(begin):
            self._lake.refresh()
        found = self._of_both(begin, until, limit_rows, limit_bytes)
        if found.gaps and self._live is not None:  # rows that left the log may be archived by now
            self._lake.refresh()
            found = self._of_both(begin, until, limit_rows, limit_bytes)
        return found

    def accept(self, portion: Portion) -> None:
        """Handle the gaps of a portion.

        Raises:
            DataLoss: there are gaps, and the policy is to fail.
        """
        self._losses.declare(portion.gaps, portion.after, portion.until)

    def lag(self, after: str) -> tuple[str, int]:
        """The current end, and an upper bound of the rows after a cursor."""
        end = self._lake_end()
        if end is None or self._lake is None:
            return self._log.lag(after)
        position = position_of(after)
        if self._lake.is_behind(position):
            return (after, 0) if self._live is None else self._live.lag(after)
        rows, begin = self._lake.rows_after(position), self._lake.begin
        if self._live is not None and position.offset < begin:
            rows += self._live.count(after, cursor_at(end, begin))
        border = cursor_at(end, end.offset)
        if self._live is None:
            return border, rows
        head, more = self._live.lag(border)
        return head, rows + more

    def release_point(self, cursor: str) -> str:
        """The position up to which a reader at a cursor no longer needs the log, as the lake has the rows."""
        end = self._lake_end()
        if end is None or self._lake is None:
            return cursor
        position = position_of(cursor)
        is_in_lake = position.offset >= self._lake.begin and not self._lake.is_behind(position)
        return cursor_at(end, end.offset) if is_in_lake else cursor

    @property
    def _log(self) -> LiveLog:
        if self._live is None:
            raise InvalidCursor(
                "the lake is empty: nothing is archived yet, and no address of a server is given"
            )
        return self._live

    def _lake_end(self) -> Position | None:
        return None if self._lake is None else self._lake.end

    def _is_old(self, after: str) -> bool:
        """Refreshing the lake may help a read after a position."""
        end = self._lake_end()
        if self._live is None or self._lake is None or end is None:
            return True
        return not self._lake.is_behind(position_of(after))

    def _of_both(
        self, after: str, until: str | None, limit_rows: int | None, limit_bytes: int | None
    ) -> Portion:
        """A portion from up to three sources: the log before the lake, the lake, the log after it."""
        lake, end = self._lake, self._lake_end()
        if lake is None or end is None:
            return self._log.portion(after, until, limit_rows, limit_bytes)
        position, found = _checked(after, end), Portion(after=after, until=after, rows=0, bytes=0)
        self._settle(lake, end, position)
        last = self._last(lake, until, end)
        if last is not None and lake.locate(last) < lake.locate(position):
            raise InvalidRequest("the read ends before it begins")
        while last is None or lake.locate(position) < lake.locate(last):
            rows = None if limit_rows is None else limit_rows - found.rows
            size = None if limit_bytes is None else limit_bytes - found.bytes
            if (rows is not None and rows <= 0) or (size is not None and size <= 0):
                break
            if lake.is_behind(position):
                return found.join(self._behind(end, found.until, until, rows, size))
            is_before = position.offset < lake.begin
            border = replace(end, offset=lake.begin) if is_before else end
            border = border if last is None else min(border, last, key=lake.locate)
            if is_before:
                to = cursor_at(border, border.offset)
                each = self._before(lake).portion(found.until, to, rows, size)
            else:
                each = lake.portion(position, border, rows, size)
            found, position = found.join(each), position_of(each.until)
            if lake.locate(position) < lake.locate(border):  # limit reached
                break
        return found

    def _settle(self, lake: "ArchivedRows", end: Position, position: Position) -> None:
        """Ask the server whether a crash truncated the archived history, if the read depends on it."""
        if self._live is not None and lake.is_ambiguous(position):
            kept = self._live.portion(cursor_at(end, end.offset), None, 1).after
            lake.set_cut(position_of(kept).offset)

    def _behind(
        self, end: Position, after: str, until: str | None, limit_rows: int | None, limit_bytes: int | None
    ) -> Portion:
        """Rows of the log after the lake."""
        found, position = self._log.portion(after, until, limit_rows, limit_bytes), position_of(after)
        if (position.epoch, position.offset) != (end.epoch, end.offset):
            return found
        # Rows lost by the log in a crash are in the lake, up to its end.
        return replace(found, gaps=[gap for gap in found.gaps if gap.reason != Reason.LOST_UNCOMMITTED])

    def _last(self, lake: "ArchivedRows", until: str | None, end: Position) -> Position | None:
        """The last position to read; None for the end of the log."""
        if until is None:
            return end if self._live is None else None
        last = _checked(until, end)
        if self._live is None and lake.locate(last) > lake.locate(end):
            raise InvalidCursor(
                "the read ends after the end of the lake, and no address of a server is given"
            )
        return last

    def _before(self, lake: "ArchivedRows") -> LiveLog:
        if self._live is None:
            raise InvalidCursor(
                f"the lake begins after offset {lake.begin}, and no address of a server is given"
            )
        return self._live


def _checked(cursor: str, end: Position) -> Position:
    position = position_of(cursor)
    if position.log_id != end.log_id:
        raise InvalidCursor("this lake belongs to another log than the cursor")
    return position


def _lake_of(options: ReadOptions) -> "ArchivedRows | None":
    if options.lake is None:
        return None
    from penstock.spark.source.lake_scan import ArchivedRows  # noqa: PLC0415 - most reads have no lake

    return ArchivedRows(options.lake, options.filters, options.parallelism)
