"""One page of a topic's history: from where, how much, and what the statement says of it. No FastAPI here."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from penstock.common.cursor import Cursor
from penstock.common.statement import Statement
from penstock.core.broker import Broker
from penstock.core.replay.history import READ_BYTES
from penstock.core.replay.statement import Chunk
from penstock.core.runtime.clock import Clock
from penstock.doors.web.support.schemas import microseconds
from penstock.errors import InvalidRequest
from penstock.runs import Run

EARLIEST = "earliest"
LATEST = "latest"
LOOKING_S = 2.0
"""Time limit of a search for messages of a topic that are far apart; then the page ends."""


class Start(Struct, frozen=True, kw_only=True):
    """Start of a page; at most one of these is given."""

    after: str | None = None
    after_sequence: int | None = None
    since: str | None = None
    last: int | None = None

    def check(self) -> None:
        """Refuse two places at once.

        Raises:
            InvalidRequest: naming what there is.
        """
        given = (self.after, self.after_sequence, self.since, self.last)
        if sum(value is not None for value in given) > 1:
            raise InvalidRequest("give one of after, after_sequence, from and last")


class HistoryReader:
    """Reads pages of one topic."""

    def __init__(self, broker: Broker, clock: Clock, topic: str) -> None:
        self._history = broker.history
        self._clock = clock
        self._topic = topic
        known = broker.topics.get(topic)
        self.newest = broker.catalog.last_sequence(topic) if known is None else known.sequence

    async def page(self, start: Start, limit: int) -> Chunk:
        """Up to `limit` messages; without a start, the last ones.

        Raises:
            InvalidCursor: the cursor cannot be read, or is of another log.
            InvalidRequest: the time cannot be read.
        """
        if start.after is not None:
            chunk = await self._replay(Cursor.decode(start.after), limit)
        elif start.since is not None and start.since != EARLIEST:
            chunk = await self._since(start.since, limit)
        elif start.since is None and start.after_sequence is None:
            chunk = await self._history.tail(self._topic, start.last or limit)
        else:
            chunk = await self._history.since_sequence(self._topic, start.after_sequence or 0)
        return self.cut(chunk, limit)

    async def _since(self, text: str, limit: int) -> Chunk:
        """From a time on; slightly earlier messages are left out."""
        if text == LATEST:
            return await self._replay(self._history.cursor(), limit)
        wall_us = microseconds(text)
        return await self._replay(self._history.at_time(wall_us), limit, wall_us)

    async def _replay(self, after: Cursor, limit: int, since_us: int = 0) -> Chunk:
        replay = self._history.replay((self._topic,), after)
        deadline = self._clock.monotonic() + LOOKING_S
        chunks: list[Chunk] = []
        served = size = 0
        while True:
            chunk = await replay.read(READ_BYTES - size)
            chunks.append(chunk)
            later = [run for run in chunk.runs if run.published_at >= since_us]
            served += sum(run.count for run in later)
            size += sum(len(run.slab) for run in chunk.runs)
            is_late = self._clock.monotonic() >= deadline
            if chunk.statement.is_at_head or served >= limit or size >= READ_BYTES or is_late:
                break
        return _join(chunks, since_us)

    def cut(self, chunk: Chunk, limit: int) -> Chunk:
        """End a page after `limit` messages, and continue with the next one."""
        kept: list[Run] = []
        room = limit
        for run in chunk.runs:
            if run.count > room:
                kept += [run.part(0, room)] if room else []
                return self._end_before(chunk, kept, run.offset + room, run.sequence + room)
            kept.append(run)
            room -= run.count
        return chunk

    def cut_after(self, chunk: Chunk, offset: int) -> Chunk:
        """End a page at an offset."""
        for index, run in enumerate(chunk.runs):
            beyond = run.last_offset - offset
            if beyond > 0:
                count = max(run.count - beyond, 0)
                kept = [*chunk.runs[:index], *([run.part(0, count)] if count else [])]
                return self._end_before(chunk, kept, run.offset + count, run.sequence + count)
        return chunk

    def _end_before(self, chunk: Chunk, kept: Iterable[Run], offset: int, sequence: int) -> Chunk:
        """Return a page that ends right before a message, with the gaps up to there."""
        runs, said = tuple(kept), chunk.statement
        statement = replace(
            said,
            next=self._history.cursor(offset - 1),
            served=sum(run.count for run in runs),
            missing=tuple(each for each in said.missing if each.last < sequence),
            gaps=tuple(each for each in said.gaps if each.first < offset),
            is_at_head=False,
        )
        return Chunk(runs, statement)


def _join(chunks: list[Chunk], since_us: int) -> Chunk:
    """Chunks that follow one another as one, without what was published before a time."""
    first, last = chunks[0].statement, chunks[-1].statement
    runs = tuple(run for chunk in chunks for run in chunk.runs if run.published_at >= since_us)
    statement = Statement(
        after=first.after,
        next=last.next,
        served=sum(run.count for run in runs),
        missing=tuple(each for chunk in chunks for each in chunk.statement.missing),
        is_at_head=last.is_at_head,
        gaps=tuple(each for chunk in chunks for each in chunk.statement.gaps),
    )
    return Chunk(runs, statement)
