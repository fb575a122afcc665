"""History: reads by cursor, time or sequence, in bounded chunks that end with a statement.

A captured topic is read from the log, any other topic from its ring. A reader at the head may join the
audience in the same turn, so that the switch to live is one offset.
"""

from asyncio import Semaphore
from collections.abc import Container, Sequence
from functools import reduce
from sys import maxsize

from msgspec.structs import replace

from penstock.common.cursor import Cursor, Position
from penstock.common.statement import Gap, Missing, Statement
from penstock.core.ports.log import Log
from penstock.core.replay.reader import Replay
from penstock.core.replay.sources import weight_of
from penstock.core.replay.statement import Chunk
from penstock.core.runtime.clock import Clock
from penstock.core.topics.catalog import TopicCatalog
from penstock.core.topics.registry import Registry
from penstock.errors import InvalidCursor
from penstock.model import Reason
from penstock.runs import Run

ALL = maxsize
READERS = 4
"""Most chunks that are read at the same time."""
READ_BYTES = 4 << 20
"""Most bytes of one topic in one read, unless the caller asks for less."""


class History:
    """Everything that can still be read of the past."""

    def __init__(self, topics: Registry, catalog: TopicCatalog, log: Log, clock: Clock) -> None:
        self.topics = topics
        self._catalog = catalog
        self.log = log
        self.clock = clock
        self.start = log.last_offset  # rings know nothing of what is not behind this
        self._sequencer = log.sequencer
        self.seats = Semaphore(READERS)  # of readers at work; all others wait in their order

    @property
    def head(self) -> int:
        """Offset of the newest message."""
        return self._sequencer.head

    def cursor(self, offset: int | None = None) -> Cursor:
        """The cursor of an offset; without one, of now."""
        at = self.head if offset is None else offset
        return Cursor((Position(self.log.log_id, self.log.epoch, at),))

    def at_time(self, wall_us: int) -> Cursor:
        """The cursor from which on everything since a time can be read; a little more may come first."""
        return self.cursor(min(self.log.offset_at(wall_us), self.head))

    def replay(self, filters: Sequence[str], after: Cursor) -> Replay:
        """Begin to read everything that filters match, from a cursor on.

        A cursor beyond what its epoch has committed is cut back, and the first statement says so.

        Raises:
            InvalidCursor: it is of another log, or names a position that does not exist yet.
        """
        offset, gaps = self.locate(after)
        return Replay(self, tuple(filters), offset, gaps=(*gaps, *self.gone_since(offset, filters)))

    def locate(self, cursor: Cursor) -> tuple[int, tuple[Gap, ...]]:
        """The offset of a cursor, and what it was beyond the end of its epoch.

        Raises:
            InvalidCursor: it is of another log, or names a position that does not exist yet.
        """
        position = cursor.position_in(self.log.log_id)
        if position is None:
            raise InvalidCursor(f"{Reason.EPOCH_CHANGED}: this cursor is of a log that is gone")
        offset = min(position.offset, self.end_of(position.epoch))
        if position.epoch > self.log.epoch or offset > self.head:
            raise InvalidCursor("this cursor is ahead of the log")
        lost = Gap(offset + 1, position.offset, Reason.LOST_UNCOMMITTED)
        return offset, (lost,) if offset < position.offset else ()

    def gone_since(
        self, offset: int, filters: Sequence[str], besides: Container[str] = ()
    ) -> tuple[Gap, ...]:
        """Return gaps after an offset left by deleted or dropped topics of these filters."""
        last = self.topics.last_gone(offset, filters, besides)
        return (Gap(offset + 1, last, Reason.EVICTED),) if last > offset else ()

    def end_of(self, epoch: int) -> int:
        """Return the last offset of an epoch."""
        end = self.log.end_of(epoch) if epoch < self.log.epoch else None
        return ALL if end is None else end

    # One topic

    async def last(self, name: str, count: int) -> tuple[Run, ...]:
        """The last messages of one topic that are still there, oldest first."""
        newest, reach, floor = self.newest(name), count, self.topics.floors.get(name, 0)
        while True:
            chunk = await self._read_topic(name, newest - reach + 1, ALL, ALL)
            runs = [run for run in chunk.runs if run.offset > floor]  # others are of before a deletion
            is_enough = chunk.statement.served >= count or len(runs) < len(chunk.runs)
            if is_enough or reach >= newest or _is_all_there_is(chunk):
                return _last_of(runs, count)
            reach *= 4  # some of them are missing, so look further back

    async def tail(self, name: str, count: int, *, limit_bytes: int = READ_BYTES) -> Chunk:
        """The last `count` sequences of one topic, as they are when the read ends.

        Messages published during the read push out as many at the front, so that a tail under traffic is
        neither longer than asked for nor behind the head. A chunk that is full does not end at the head.
        """
        first = self.newest(name) - count + 1
        chunk = await self._read_topic(name, first, ALL, limit_bytes)
        oldest, newest = _reach_of(chunk)
        first = newest - count + 1
        if oldest >= first:
            return chunk
        later = self._clip(chunk, first, ALL)
        before = [
            run.offset + min(first - run.sequence, run.count) for run in chunk.runs if run.sequence < first
        ]
        after = self.cursor(before[-1] - 1) if before else later.statement.after
        return replace(later, statement=replace(later.statement, after=after))

    async def since_sequence(
        self, name: str, sequence: int, *, epoch: int | None = None, limit_bytes: int = READ_BYTES
    ) -> Chunk:
        """Everything of one topic after a sequence, and exactly what of it is gone.

        With the epoch in which the reader was given this sequence, a place beyond what that epoch has
        committed is cut back, because the same sequences were given again. A chunk that is full does not end
        at the head: the next one begins where it ends.
        """
        kept = sequence if epoch is None else await self._cut_back(name, sequence, self.end_of(epoch))
        chunk = await self._read_topic(name, kept + 1, ALL, limit_bytes)
        if kept == sequence:
            return chunk
        lost = Missing(name, kept + 1, sequence, Reason.LOST_UNCOMMITTED)
        return replace(chunk, statement=replace(chunk.statement, missing=(lost, *chunk.statement.missing)))

    async def between(self, name: str, first: int, last: int, *, limit_bytes: int = READ_BYTES) -> Chunk:
        """The messages of one topic with these sequences, and exactly what of them is gone.

        A chunk that is full ends before the last of them: the next one begins where it ends.
        """
        return await self._read_topic(name, first, last, limit_bytes)

    def newest(self, name: str) -> int:
        """The last sequence that was given to a topic."""
        topic, gone = self.topics.get(name), self.topics.gone.get(name)
        if topic is not None:
            return topic.sequence
        return max(self._catalog.last_sequence(name), 0 if gone is None else gone.sequence)

    async def _read_topic(self, name: str, first: int, last: int, limit_bytes: int) -> Chunk:
        first, newest = max(first, 1), self.newest(name)
        if first > min(last, newest):
            return Chunk((), Statement(self.cursor(), self.cursor(), 0))
        replay = await self._begin(name, first, newest)
        chunks: list[Chunk] = []
        size = 0
        while True:
            chunk = await replay.read(limit_bytes - size)
            chunks.append(self._clip(chunk, first, last))
            size += sum(map(weight_of, chunks[-1].runs))
            if chunk.statement.is_at_head or size >= limit_bytes or _reach_of(chunk)[1] >= last:
                return reduce(_join, chunks)

    async def _begin(self, name: str, first: int, newest: int) -> Replay:
        """A replay of one topic from a sequence on."""
        topic, end = self.topics.get(name), self.log.last_offset
        found = await self.log.find_sequence(name, first)
        log_after = end if found is None else found
        has_ring_only = topic is not None and not topic.rules.is_kept
        after = 0 if has_ring_only else log_after
        return Replay(self, (name,), after, log_after=log_after, expected={name: (first, newest)})

    def _clip(self, chunk: Chunk, first: int, last: int) -> Chunk:
        """Cut a topic's chunk to a range of sequences. The sequences are complete, so there are no gaps."""
        runs = tuple(part for run in chunk.runs if (part := _part(run, first, last)) is not None)
        missing = tuple(
            replace(each, first=max(each.first or first, first), last=min(each.last, last))
            for each in chunk.statement.missing
            if each.last >= first and (each.first or first) <= last
        )
        statement = replace(chunk.statement, served=sum(run.count for run in runs), missing=missing, gaps=())
        later = next((run for run in chunk.runs if run.last_sequence > last), None)
        if later is not None:
            place = self.cursor(later.offset + max(last + 1 - later.sequence, 0) - 1)
            statement = replace(statement, next=place, is_at_head=False)
        return Chunk(runs, statement)

    async def _cut_back(self, name: str, sequence: int, end: int) -> int:
        """The last sequence up to this one that a topic has up to an offset."""
        if end == ALL:
            return sequence
        sequence = min(sequence, self.newest(name))
        here = await self._read_topic(name, sequence, sequence, ALL)
        if here.runs and here.runs[0].offset <= end:
            return sequence
        replay = Replay(self, (name,), end)
        while not (chunk := await replay.read(1)).statement.is_at_head and not chunk.runs:
            pass
        return min(sequence, _reach_of(chunk)[0] - 1)


def _part(run: Run, first: int, last: int) -> Run | None:
    """The messages of a run with these sequences, if it has any."""
    skip = max(first - run.sequence, 0)
    count = min(last - run.sequence + 1, run.count) - skip
    return run.part(skip, count) if count > 0 else None


def _is_all_there_is(chunk: Chunk) -> bool:
    """Return whether nothing older can remain of a topic, because messages leave in the order of age."""
    missing = chunk.statement.missing
    return bool(missing) and missing[0].reason in {Reason.EVICTED, Reason.RETENTION}


def _last_of(runs: Sequence[Run], count: int) -> tuple[Run, ...]:
    """The last messages of some runs."""
    taken: list[Run] = []
    for run in reversed(runs):
        if count <= 0:
            break
        take = min(count, run.count)
        taken.append(run.part(run.count - take, take))
        count -= take
    return tuple(reversed(taken))


def _reach_of(chunk: Chunk) -> tuple[int, int]:
    """The lowest and the highest sequence that a chunk of one topic has, or says to be missing."""
    lowest = [run.sequence for run in chunk.runs]
    highest = [run.last_sequence for run in chunk.runs]
    for missing in chunk.statement.missing:
        lowest.append(missing.first or missing.last)
        highest.append(missing.last)
    return min(lowest, default=ALL), max(highest, default=0)


def _join(one: Chunk, other: Chunk) -> Chunk:
    """Two chunks, of which the second follows the first, as one."""
    before, after = one.statement, other.statement
    statement = Statement(
        before.after,
        after.next,
        before.served + after.served,
        before.missing + after.missing,
        after.is_at_head,
    )
    return Chunk(one.runs + other.runs, statement)
