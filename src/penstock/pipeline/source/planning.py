"""Where a read begins and ends, and how it is cut into parts: one table from the lake and the log behind it.

What the lake has comes from the lake, the rest from the log; every offset is on one side of the cut. Which
side that is makes no difference to the rows, so the cut may move from one plan to the next.
"""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.core.ports import Position
from penstock.errors import InvalidCursor, InvalidRequest
from penstock.pipeline.source.live import LiveLog, Portion
from penstock.pipeline.source.missing import LOST, Losses
from penstock.pipeline.source.offsets import cursor_at, position_of
from penstock.pipeline.source.options import EARLIEST, LATEST, Place, ReadOptions

if TYPE_CHECKING:
    from penstock.pipeline.source.archived import ArchivedRows


class Planner:
    """Plans one read; it lives on the driver."""

    def __init__(self, options: ReadOptions) -> None:
        connection = options.connection
        parallelism = options.parallelism
        self._live = None if connection is None else LiveLog(connection, options.filters, parallelism)
        self._lake = _lake_of(options)
        self._losses = Losses(options.fail_on_data_loss, options.missing)
        self._losses.prepare()

    def cursor(self, place: Place) -> str:
        """The cursor of a place.

        Raises:
            InvalidCursor: only a lake is asked, and nothing was archived yet.
        """
        if isinstance(place, str) and place not in (EARLIEST, LATEST):
            return place
        lake, end = self._lake, self._lake_end()
        if lake is None or end is None or (place == LATEST and self._live is not None):
            return self._log.position(place).cursor
        found = None if place == LATEST else lake.find(place)
        lake.forgive()
        is_inside = found is not None and not lake.begin
        if self._live is not None and not is_inside:  # it may lie before the lake, or behind it
            there = self._live.position(place)
            if there.offset < lake.begin or (found is None and there.offset > end.offset):
                return there.cursor
        return cursor_at(end, end.offset if found is None else found)

    def portion(
        self,
        after: Place,
        until: str | None = None,
        limit_rows: int | None = None,
        limit_bytes: int | None = None,
    ) -> Portion:
        """What lies behind a place, up to a cursor or to where it ends now, and within some limits.

        Limits keep a portion from being large; it has something all the same, if there is anything.
        """
        if self._lake is None:
            found = self._log.portion(after, until, limit_rows, limit_bytes)
            is_cursor = isinstance(after, str) and after not in (EARLIEST, LATEST)
            return replace(found, after=after) if is_cursor else found  # what is lost is lost by its epoch
        begin = self.cursor(after)
        if self._is_old(begin):
            self._lake.look()
        found = self._of_both(begin, until, limit_rows, limit_bytes)
        if found.gaps and self._live is not None:  # what left the log may be in the lake by now
            self._lake.look()
            found = self._of_both(begin, until, limit_rows, limit_bytes)
        return found

    def accept(self, portion: Portion) -> None:
        """Take note of what is missing of a portion.

        Raises:
            DataLoss: something is, and that is not accepted.
        """
        self._losses.declare(portion.gaps, portion.after, portion.until)

    def lag(self, after: str) -> tuple[str, int]:
        """Where everything ends now, and how many rows a cursor is behind that, at most."""
        end = self._lake_end()
        if end is None or self._lake is None:
            return self._log.lag(after)
        place = position_of(after)
        if self._lake.is_behind(place):
            return (after, 0) if self._live is None else self._live.lag(after)
        rows = self._lake.rows_after(place)
        border = cursor_at(end, end.offset)
        if self._live is None:
            return border, rows
        head, more = self._live.lag(border)
        return head, rows + more

    def kept_until(self, cursor: str) -> str:
        """Up to where the log need not stay for who has read up to a cursor: the lake has some of it too."""
        end = self._lake_end()
        if end is None or self._lake is None:
            return cursor
        place = position_of(cursor)
        is_in_lake = place.offset >= self._lake.begin and not self._lake.is_behind(place)
        return cursor_at(end, end.offset) if is_in_lake else cursor

    @property
    def _log(self) -> LiveLog:
        if self._live is None:
            raise InvalidCursor("nothing was archived yet: the lake is empty, and no server is to be asked")
        return self._live

    def _lake_end(self) -> Position | None:
        return None if self._lake is None else self._lake.end

    def _is_old(self, after: str) -> bool:
        """Whether a new look at the lake could tell more about what lies behind a place."""
        end = self._lake_end()
        if self._live is None or self._lake is None or end is None:
            return True
        return not self._lake.is_behind(position_of(after))

    def _of_both(
        self, after: str, until: str | None, limit_rows: int | None, limit_bytes: int | None
    ) -> Portion:
        """A portion from as many sides as it takes: the log before the lake, the lake, the log behind it."""
        lake, end = self._lake, self._lake_end()
        if lake is None or end is None:
            return self._log.portion(after, until, limit_rows, limit_bytes)
        place, found = _checked(after, end), Portion(after=after, until=after, rows=0, bytes=0)
        self._settle(lake, end, place)
        last = self._last(lake, until, end)
        if last is not None and lake.spot(last) < lake.spot(place):
            raise InvalidRequest("what is to be read ends before it begins")
        while last is None or lake.spot(place) < lake.spot(last):
            rows = None if limit_rows is None else limit_rows - found.rows
            size = None if limit_bytes is None else limit_bytes - found.bytes
            if (rows is not None and rows <= 0) or (size is not None and size <= 0):
                break
            if lake.is_behind(place):
                return found.join(self._behind(end, found.until, until, rows, size))
            is_before = place.offset < lake.begin
            border = replace(end, offset=lake.begin) if is_before else end
            border = border if last is None else min(border, last, key=lake.spot)
            if is_before:
                to = cursor_at(border, border.offset)
                each = self._before(lake).portion(found.until, to, rows, size)
            else:
                each = lake.portion(place, border, rows, size)
            found, place = found.join(each), position_of(each.until)
            if lake.spot(place) < lake.spot(border):  # a limit was reached
                break
        return found

    def _settle(self, lake: "ArchivedRows", end: Position, place: Position) -> None:
        """Find out whether a crash took the end of what was archived, if that makes a difference."""
        if self._live is not None and lake.doubts(place):
            kept = self._live.portion(cursor_at(end, end.offset), None, 1).after
            lake.learn(position_of(kept).offset)

    def _behind(
        self, end: Position, after: str, until: str | None, limit_rows: int | None, limit_bytes: int | None
    ) -> Portion:
        """What the log has behind the lake."""
        found, place = self._log.portion(after, until, limit_rows, limit_bytes), position_of(after)
        if (place.epoch, place.offset) != (end.epoch, end.offset):
            return found
        # What a crash took of the log is in the lake, up to its end.
        return replace(found, gaps=[gap for gap in found.gaps if gap.reason != LOST])

    def _last(self, lake: "ArchivedRows", until: str | None, end: Position) -> Position | None:
        """The last place to read; None for as far as the log goes."""
        if until is None:
            return end if self._live is None else None
        last = _checked(until, end)
        if self._live is None and lake.spot(last) > lake.spot(end):
            raise InvalidCursor("what is to be read ends behind what the lake has")
        return last

    def _before(self, lake: "ArchivedRows") -> LiveLog:
        if self._live is None:
            raise InvalidCursor(f"the lake begins behind offset {lake.begin}, and no server is to be asked")
        return self._live


def _checked(cursor: str, end: Position) -> Position:
    place = position_of(cursor)
    if place.log_id != end.log_id:
        raise InvalidCursor("this lake is of another log")
    return place


def _lake_of(options: ReadOptions) -> "ArchivedRows | None":
    if options.lake is None:
        return None
    from penstock.pipeline.source.archived import ArchivedRows  # noqa: PLC0415 - most reads have no lake

    return ArchivedRows(options.lake, options.filters, options.parallelism)
