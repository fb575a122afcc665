"""Reading back: a cursor over rings and log, in bounded chunks, each ending with a statement.

A topic that the log keeps is read from the log, any other from its ring. Replays over filters look at
each known topic once, in slices, so that a million topics do not stop the loop; a replay that has
reached the head may join its audience in the same turn, and the seam is one offset.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter

from msgspec import Struct

from penstock.core.clock import Clock
from penstock.core.cursor import Cursor
from penstock.core.ports import Log, Position
from penstock.core.registry import Registry, Topic
from penstock.core.statement import Missing, Statement
from penstock.core.topics import matches
from penstock.errors import InvalidCursor
from penstock.model import NEVER, Reason, Run

TOPICS_A_SLICE = 2_000
_offset_of = attrgetter("offset")


class Chunk(Struct, frozen=True):
    """Runs in the order of their offsets, and what can be said of them."""

    runs: tuple[Run, ...]
    statement: Statement


class History:
    """Everything that can still be read of the past."""

    def __init__(self, topics: Registry, log: Log, clock: Clock) -> None:
        self._topics = topics
        self._log = log
        self._clock = clock
        self.head = 0  # the offset of the newest message

    def cursor(self, offset: int | None = None) -> Cursor:
        """The cursor of an offset; without one, of now."""
        at = self.head if offset is None else offset
        return Cursor((Position(self._log.log_id, self._log.epoch, at),))

    def last(self, name: str, count: int) -> tuple[Run, ...]:
        """The last messages of one topic that are still there, oldest first."""
        topic = self._topics.get(name)
        runs = self._stored(topic, 0) if topic is not None else []
        kept: list[Run] = []
        for run in reversed(runs):
            if count <= 0:
                break
            take = min(count, run.count)
            kept.append(run.part(run.count - take, take))
            count -= take
        return tuple(reversed(kept))

    def since_sequence(self, name: str, sequence: int) -> Chunk:
        """Everything of one topic after a sequence, and exactly what of it is gone."""
        topic = self._topics.get(name)
        after = self.cursor(0)
        if topic is None:
            return Chunk((), Statement(after, self.cursor(), 0))
        runs = [run for run in self._stored(topic, 0) if run.sequence + run.count - 1 > sequence]
        if runs and runs[0].sequence <= sequence:
            skip = sequence + 1 - runs[0].sequence
            runs[0] = runs[0].part(skip, runs[0].count - skip)
        alive, missing = self._sift(runs)
        if (oldest := runs[0].sequence if runs else topic.sequence + 1) > sequence + 1:
            missing.insert(0, Missing(name, sequence + 1, oldest - 1, self._reason(topic)))
        return self._chunk(after, self.head, alive, missing, is_at_head=True)

    def replay(self, filters: Sequence[str], after: Cursor) -> "Replay":
        """Begin to read everything that filters match, from a cursor on.

        Raises:
            InvalidCursor: it is of another log, or names a position that does not exist yet.
        """
        position = after.position_in(self._log.log_id)
        if position is None:
            raise InvalidCursor(f"{Reason.EPOCH_CHANGED}: this cursor is of a log that is gone")
        if position.offset > self.head:
            raise InvalidCursor("this cursor is ahead of the log")
        return Replay(self, tuple(filters), position.offset)

    def _stored(self, topic: Topic, after: int) -> list[Run]:
        """What is kept of a topic after an offset, log or ring, oldest first."""
        if topic.traits.is_kept:
            return list(self._log_runs(after, (topic.name,)))
        return self._ring_runs(topic, after)

    def _ring_runs(self, topic: Topic, after: int) -> list[Run]:
        if topic.ring is not None and topic.ring.last_offset <= after:
            return []
        runs = (run for run in topic.runs if run.offset + run.count - 1 > after)
        return [run if run.offset > after else _beyond(run, after) for run in runs]

    def _log_runs(self, after: int, names: Container[str]) -> Iterator[Run]:
        while (span := self._log.read(after, 1 << 20)).runs:
            for run in span.runs:
                if run.topic in names:
                    yield run if run.offset > after else _beyond(run, after)
            after = span.until

    def _gone_offset(self, topic: Topic) -> int:
        """The offset up to which messages of a topic may be in neither ring nor log any more."""
        if topic.traits.is_kept:
            return self._log.first_offset - 1
        if topic.ring is not None:
            return topic.ring.evicted_offset
        return topic.gone_offset

    def _sequence_at(self, topic: Topic, offset: int) -> int | None:
        """The last sequence of a topic up to an offset, if its ring still remembers."""
        known = None
        for run in topic.runs:
            if run.offset <= offset:
                known = run.sequence + min(run.count - 1, offset - run.offset)
        return known

    def _reason(self, topic: Topic) -> Reason:
        if topic.traits.is_kept:
            return Reason.RETENTION
        if not topic.traits.has_ring:
            return Reason.NEVER_STORED
        # Without a ring its only message was a retained value, which stayed until it expired.
        return Reason.EXPIRED if topic.ring is None and topic.gone_offset else Reason.EVICTED

    def _sift(self, runs: Sequence[Run]) -> tuple[list[Run], list[Missing]]:
        """Split what is still alive from what has expired."""
        now = self._clock.monotonic()
        alive: list[Run] = []
        missing: list[Missing] = []
        for run in runs:
            if NEVER < run.expires_at <= now:
                missing.append(Missing(run.topic, run.sequence, run.sequence + run.count - 1, Reason.EXPIRED))
            else:
                alive.append(run)
        return alive, missing

    def _chunk(
        self, after: Cursor, until: int, runs: Sequence[Run], missing: Sequence[Missing], *, is_at_head: bool
    ) -> Chunk:
        served = sum(run.count for run in runs)
        statement = Statement(after, self.cursor(until), served, tuple(missing), is_at_head)
        return Chunk(tuple(runs), statement)


class Replay:
    """One reader on its way from a cursor to the head."""

    def __init__(self, history: History, filters: tuple[str, ...], after: int) -> None:
        self._history = history
        self._filters = filters
        self._after = after
        self._looked_at = 0
        self._topics: list[Topic] = []  # read from their rings
        self._kept: dict[str, Topic] = {}  # read from the log, all at once
        self._accounted: dict[str, int] = {}  # of each topic the last sequence served, or said to be missing

    def look(self) -> bool:
        """Find the topics that are meant, one slice at a time; True while there are more."""
        topics = self._history._topics
        for topic in islice(topics.values(), self._looked_at, self._looked_at + TOPICS_A_SLICE):
            self._looked_at += 1
            if any(matches(filter, topic.name) for filter in self._filters):
                if topic.traits.is_kept:
                    self._kept[topic.name] = topic
                else:
                    self._topics.append(topic)
        return self._looked_at < len(topics)

    def read(self, limit_bytes: int) -> Chunk:
        """The next chunk. Topics made since the last look are looked at first."""
        while self.look():
            pass
        history, asked = self._history, self._after
        runs: list[Run] = []
        size, until = 0, history.head
        stored = {topic: history._ring_runs(topic, asked) for topic in self._topics}
        sources: list[Iterable[Run]] = [*stored.values(), history._log_runs(asked, self._kept)]
        for run in merge(*sources, key=_offset_of):
            if size >= limit_bytes:
                until = run.offset - 1
                break
            runs.append(run)
            size += len(run.slab)
        alive, missing = history._sift(runs)
        losses = self._find_lost(stored, asked, until)
        for run in runs:
            self._accounted[run.topic] = run.sequence + run.count - 1
        self._after = until
        cursor = history.cursor(asked)
        return history._chunk(cursor, until, alive, losses + missing, is_at_head=until == history.head)

    def _find_lost(self, stored: dict[Topic, list[Run]], asked: int, until: int) -> list[Missing]:
        """What has gone before it could be read: told once, by the chunk that passes the last of it."""
        history = self._history
        oldest = {topic: runs[0].sequence for topic, runs in stored.items() if runs}
        if self._kept and asked < history._gone_offset(next(iter(self._kept.values()))):
            for run in history._log_runs(asked, self._kept):
                oldest.setdefault(self._kept[run.topic], run.sequence)
        losses: list[Missing] = []
        for topic in (*self._topics, *self._kept.values()):
            last = oldest.get(topic, topic.sequence + 1) - 1
            if asked < history._gone_offset(topic) <= until:
                known = self._accounted.get(topic.name, history._sequence_at(topic, asked))
                if last > (known or 0):
                    first = None if known is None else known + 1
                    losses.append(Missing(topic.name, first, last, history._reason(topic)))
                    self._accounted[topic.name] = last
        return losses


def _beyond(run: Run, offset: int) -> Run:
    skip = offset + 1 - run.offset
    return run.part(skip, run.count - skip)
