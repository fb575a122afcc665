"""Places in the log, as callers name them: cursors, times, `earliest` and `latest`. No FastAPI here."""

from msgspec import Struct

from penstock.core.archive import Archive
from penstock.core.broker import Broker
from penstock.core.cursor import Cursor
from penstock.core.ports import Gap
from penstock.doors.web.reading import EARLIEST, LATEST
from penstock.doors.web.times import microseconds
from penstock.errors import InvalidCursor, InvalidRequest
from penstock.model import Reason


class Place(Struct, frozen=True):
    """Everything up to and including `offset` was seen; `asked` was meant, before it was cut back."""

    offset: int
    asked: int
    epoch: int

    def is_before(self, other: "Place") -> bool:
        """Whether this lies before another one. An offset that was lost comes again in a later epoch."""
        if self.epoch > other.epoch:
            return self.offset < other.offset
        return self.asked < other.asked

    @property
    def lost(self) -> tuple[Gap, ...]:
        """What a cursor had seen that was never committed."""
        gap = Gap(self.offset + 1, self.asked, Reason.LOST_UNCOMMITTED)
        return (gap,) if self.offset < self.asked else ()


class Stretch(Struct, frozen=True):
    """The offsets that someone asks for, and what their cursors had seen that was never committed."""

    after: int
    until: int
    lost: tuple[Gap, ...] = ()
    """Of the cursor to begin at."""
    lost_at_end: tuple[Gap, ...] = ()
    """Of the cursor to end at."""


class Places:
    """Finds places in one log."""

    def __init__(self, archive: Archive, broker: Broker) -> None:
        self._archive = archive
        self._history = broker.history

    def at_cursor(self, text: str) -> Place:
        """The place of a cursor; one beyond what its epoch has committed is cut back.

        Raises:
            InvalidCursor: it is none, or of another log, or ahead of this one.
        """
        archive, position = self._archive, Cursor.decode(text).position_in(self._archive.log_id)
        if position is None:
            raise InvalidCursor("this cursor is of another log")
        end = archive.end_of(position.epoch) if position.epoch < archive.epoch else None
        offset = position.offset if end is None else min(position.offset, end)
        # Who subscribes may know of messages that are not committed yet.
        if position.epoch > archive.epoch or offset > max(self._history.head, archive.last_offset):
            raise InvalidCursor("this cursor is ahead of the log")
        return Place(offset, position.offset, position.epoch)

    async def at(self, text: str) -> Place:
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
        return Place(offset, offset, self._archive.epoch)

    async def stretch(self, after: str | None, start: str | None, until: str | None) -> Stretch:
        """The offsets after a cursor or from a place on, up to a cursor or to where the log ends now.

        Raises:
            InvalidRequest: these do not go together.
            InvalidCursor: there is no such place.
        """
        if after is not None and start is not None:
            raise InvalidRequest("give one of after and from")
        begin = self.at_cursor(after) if after is not None else await self.at(start or EARLIEST)
        if until is None:
            return Stretch(begin.offset, max(self._archive.last_offset, begin.offset), begin.lost)
        end = self.at_cursor(until)
        if end.is_before(begin):
            raise InvalidRequest("until lies before the place to begin at")
        lost = Place(max(end.offset, begin.asked), end.asked, end.epoch).lost if end.lost else ()
        return Stretch(begin.offset, max(end.offset, begin.offset), begin.lost, lost)

    def cursor(self, offset: int) -> Cursor:
        """The cursor of an offset."""
        return self._history.cursor(offset)
