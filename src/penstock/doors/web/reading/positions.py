"""Places in the log, as callers name them: cursors, times, `earliest` and `latest`. No FastAPI here."""

from msgspec import Struct

from penstock.common.cursor import Cursor
from penstock.common.statement import Gap
from penstock.core.broker import Broker
from penstock.core.ports.archive import Archive
from penstock.doors.web.reading.history_page import EARLIEST, LATEST
from penstock.doors.web.support.schemas import microseconds
from penstock.errors import InvalidCursor, InvalidRequest
from penstock.model import Reason


class LogPosition(Struct, frozen=True):
    """Everything up to and including `offset` was seen; `asked` is the requested one, before clamping."""

    offset: int
    asked: int
    epoch: int

    def is_before(self, other: "LogPosition") -> bool:
        """True if this is before another one. A lost offset is given again in a later epoch."""
        if self.epoch > other.epoch:
            return self.offset < other.offset
        return self.asked < other.asked

    @property
    def lost(self) -> tuple[Gap, ...]:
        """Messages that a cursor has seen, but were never committed."""
        gap = Gap(self.offset + 1, self.asked, Reason.LOST_UNCOMMITTED)
        return (gap,) if self.offset < self.asked else ()


class LogRange(Struct, frozen=True):
    """Requested offsets, and what their cursors have seen that was never committed."""

    after: int
    until: int
    lost: tuple[Gap, ...] = ()
    """Of the cursor to begin at."""
    lost_at_end: tuple[Gap, ...] = ()
    """Of the cursor to end at."""


class LogPositions:
    """Finds places in one log."""

    def __init__(self, archive: Archive, broker: Broker) -> None:
        self._archive = archive
        self._history = broker.history

    def at_cursor(self, text: str) -> LogPosition:
        """The place of a cursor; one beyond what its epoch has committed is cut back.

        Raises:
            InvalidCursor: it is none, or of another log, or ahead of this one.
        """
        archive, position = self._archive, Cursor.decode(text).position_in(self._archive.log_id)
        if position is None:
            raise InvalidCursor("this cursor is of another log")
        end = archive.end_of(position.epoch) if position.epoch < archive.epoch else None
        offset = position.offset if end is None else min(position.offset, end)
        # A subscriber may know of messages that are not committed yet.
        if position.epoch > archive.epoch or offset > max(self._history.head, archive.last_offset):
            raise InvalidCursor("this cursor is ahead of the log")
        return LogPosition(offset, position.offset, position.epoch)

    async def at(self, text: str) -> LogPosition:
        """The place of `earliest`, `latest` or a time.

        Raises:
            InvalidRequest: it is none of these.
        """
        if text == EARLIEST:
            offset = self._archive.first_offset - 1
        elif text == LATEST:
            offset = self._archive.last_offset
        else:
            offset = await self._archive.find_time(microseconds(text))
        return LogPosition(offset, offset, self._archive.epoch)

    async def stretch(self, after: str | None, start: str | None, until: str | None) -> LogRange:
        """Return the offsets after a cursor or from a position, up to a cursor or to the end of the log.

        Raises:
            InvalidRequest: a combination that is not allowed.
            InvalidCursor: no such position.
        """
        if after is not None and start is not None:
            raise InvalidRequest("give one of after and from")
        begin = self.at_cursor(after) if after is not None else await self.at(start or EARLIEST)
        if until is None:
            return LogRange(begin.offset, max(self._archive.last_offset, begin.offset), begin.lost)
        end = self.at_cursor(until)
        if end.is_before(begin):
            raise InvalidRequest("until lies before the place to begin at")
        lost = LogPosition(max(end.offset, begin.asked), end.asked, end.epoch).lost if end.lost else ()
        return LogRange(begin.offset, max(end.offset, begin.offset), begin.lost, lost)

    def cursor(self, offset: int) -> Cursor:
        """The cursor of an offset."""
        return self._history.cursor(offset)
