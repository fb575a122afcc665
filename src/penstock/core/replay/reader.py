"""Replay reader: from a cursor to the head, chunk by chunk.

Messages come in the order of their offsets, from the log or from rings. The reader tracks the last sequence
of each topic that it served or reported, so a gap is reported once, with its reason.
"""

from asyncio import Semaphore, sleep
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Protocol

from penstock.common.cursor import Cursor
from penstock.common.statement import Gap, Missing, Statement
from penstock.common.topics import is_wildcard, matches
from penstock.core.ports.log import Log
from penstock.core.replay.sources import (
    LogSource,
    Loss,
    RingSources,
    beyond,
    gone_offset,
    reason_of,
    sequence_at,
    weight_of,
)
from penstock.core.replay.statement import Chunk
from penstock.core.runtime.clock import Clock
from penstock.core.topics.registry import Registry
from penstock.core.topics.topic import Topic
from penstock.model import Reason
from penstock.runs import Run

_offset_of = attrgetter("offset")
TOPICS_A_SLICE = 500
RINGS_A_SLICE = 100
NO_FLOORS: Mapping[str, int] = {}
NEAR_TOPICS = 500
NEAR_MESSAGES = 2_000
"""Most messages that a reader takes from rings at once; beyond that the log is read."""


class Past(Protocol):
    """Source of a replay."""

    topics: Registry
    log: Log
    clock: Clock
    start: int
    seats: Semaphore

    @property
    def head(self) -> int: ...

    def cursor(self, offset: int | None = None) -> Cursor: ...


class Replay:
    """Everything that filters match, from an offset on."""

    def __init__(
        self,
        past: Past,
        filters: Sequence[str],
        after: int,
        *,
        log_after: int | None = None,
        expected: Mapping[str, tuple[int, int]] | None = None,
        gaps: Sequence[Gap] = (),
        missing: Sequence[Missing] = (),
        floors: Mapping[str, int] = NO_FLOORS,
        floor: int = 0,
    ) -> None:
        """Begin after an offset.

        Args:
            log_after: where to begin in the log, if nothing can be found before.
            expected: first and last sequence of topics, where they are known.
            gaps: gaps for the statement of the first chunk.
            missing: missing messages for the statement of the first chunk.
            floors: offsets by topic, up to which nothing is served or missing.
            floor: the same for all other topics.
        """
        self._past = past
        self._after = after
        self._names = None if any(map(is_wildcard, filters)) else tuple(filters)
        self._filters = tuple(filters)
        self._rings = RingSources(after)
        self._log = LogSource(
            past.log, after if log_after is None else log_after, self._is_wanted, lambda: past.head
        )
        self._gaps = list(gaps)
        self._missing = list(missing)
        self._floors = floors
        self._floor = floor
        # Of each topic the last sequence served, or said to be missing, and an offset before the next:
        self._served = {
            topic: (first - 1, floors.get(topic, 0)) for topic, (first, _) in (expected or {}).items()
        }
        self._expected = {topic: last for topic, (_, last) in (expected or {}).items()}
        self._is_doubtful = bool(expected)  # topics may have lost messages that no later one reveals
        self._start = after
        self._seen = after  # topics that were used up to here are known, but for those to be looked at yet
        self._unlooked: list[Topic] = []
        self._followed: dict[str, Topic] = {}  # those whose rings are read
        self._kept: dict[str, Topic] | None = {}  # those that the log keeps; None if they are too many

    @property
    def after(self) -> int:
        """Everything up to this offset was served, or said to be missing."""
        return self._after

    # Which topics

    def _is_wanted(self, topic: str) -> bool:
        return any(matches(filter, topic) for filter in self._filters)

    def look(self) -> bool:
        """Find the topics that are meant, one slice at a time; True while there are more."""
        if not self._unlooked:
            self._unlooked = self._find_used()
        for topic in self._unlooked[-TOPICS_A_SLICE:]:
            if topic.last_offset <= self._start or not self._is_wanted(topic.name):
                continue
            if not topic.rules.is_kept:
                self._follow(topic)
            elif self._kept is not None:
                self._kept[topic.name] = topic
                if len(self._kept) > NEAR_TOPICS:
                    self._kept = None
        del self._unlooked[-TOPICS_A_SLICE:]
        return bool(self._unlooked)

    def _find_used(self) -> list[Topic]:
        """The topics that may have got something since the last look; single ones are looked up."""
        topics = self._past.topics
        if self._names is not None:
            return [topic for topic in map(topics.get, self._names) if topic is not None]
        seen, self._seen = self._seen, self._past.head
        return topics.recency.since(seen) if seen < self._seen else []

    def _find_few_used(self) -> bool:
        """The same, for the next look, if that takes no time to speak of; False if it would."""
        if self._names is None and self._seen < self._past.head:
            few = self._past.topics.recency.few_since(self._seen)
            if few is None:
                return False
            self._unlooked, self._seen = few, self._past.head
        return True

    def _follow(self, topic: Topic) -> None:
        known = self._followed.get(topic.name)
        if known is not topic:
            if known is not None:
                self._served.pop(topic.name, None)  # it was forgotten meanwhile, and counts from elsewhere
            self._followed[topic.name] = topic
            self._rings.add(topic, max(self._after, self._floor_of(topic.name)))

    def _floor_of(self, topic: str) -> int:
        return self._floors.get(topic, self._floor)

    # Reading

    async def read(self, limit_bytes: int) -> Chunk:
        """Read the next chunk. If it ends at the head, its reader may join the audience in the same turn."""
        async with self._past.seats:
            while self.look():  # noqa: ASYNC110 - each turn is work, not a wait
                await sleep(0)
            await self._fill_rings()
            await self._log.fill(limit_bytes)
            return self._gather(limit_bytes)

    def read_now(self, limit_bytes: int) -> Chunk | None:
        """The next chunk, if that needs neither the disk nor a long look; otherwise None."""
        if self._unlooked or not self._find_few_used():
            return None
        while self.look():
            pass
        if self._rings.is_swept and len(self._rings.news()) > RINGS_A_SLICE:
            return None
        if not (self._log.fill_now() or self._take_near()):
            return None
        return self._gather(limit_bytes)

    def _take_near(self) -> bool:
        """Let rings stand for the log, if they still have everything that it has after our place."""
        past, after = self._past, self._log.until
        if self._kept is None or len(self._followed) > NEAR_TOPICS or after < past.start:
            return False
        rings = (*self._kept.values(), *self._followed.values())  # single messages of any topic may be logged
        if any(gone_offset(topic) > max(after, self._floor_of(topic.name)) for topic in rings):
            return False
        if not self._is_known_since(after):
            return False
        topics = [topic for topic in self._kept.values() if topic.last_offset > after]
        if sum(topic.ring.messages if topic.ring is not None else 1 for topic in topics) > NEAR_MESSAGES:
            return False
        runs = [run for topic in topics for run in topic.runs if run.last_offset > after]
        self._log.take_tail(sorted(runs, key=_offset_of), past.head)
        return True

    def _is_known_since(self, after: int) -> bool:
        """Return whether the log has nothing after an offset of dropped or deleted topics."""
        topics = self._past.topics
        if topics.forgotten_sequence or len(topics.gone) > NEAR_TOPICS:
            return False
        return not any(gone.offset > after and self._is_wanted(name) for name, gone in topics.gone.items())

    async def _fill_rings(self) -> None:
        """Look at rings that have something new, slice by slice; the last few are left to `_gather`."""
        news = self._rings.news() if self._rings.is_swept else []
        for start in range(0, len(news) - RINGS_A_SLICE, RINGS_A_SLICE):
            self._rings.fill(news[start : start + RINGS_A_SLICE])
            await sleep(0)

    def _gather(self, limit_bytes: int) -> Chunk:
        """A chunk of what is there, without a pause, so that nothing is published meanwhile."""
        while self.look():
            pass
        past, asked, rings, log = self._past, self._after, self._rings, self._log
        rings.sweep(past.head)
        runs: list[Run] = []
        missing: list[Missing] = []
        size, until, reached = 0, min(log.until, rings.swept), asked
        ring_at, log_at = rings.next_offset, log.next_offset
        while ring_at <= until or log_at <= until:
            if size >= limit_bytes:
                until = min(ring_at, log_at) - 1
                break
            item: Run | Loss
            if log_at <= ring_at:
                item = log.take()
                log_at = log.next_offset
            else:
                item = rings.take()
                ring_at = rings.next_offset
            floor = self._floor_of(item.topic)
            if isinstance(item, Loss):
                if item.offset > floor:
                    self._note_loss(item, missing)
            elif item.last_offset > max(reached, floor):  # or else the ring has it as well
                run = beyond(item, max(reached, floor))
                self._note_run(run, missing)
                runs.append(run)
                size += weight_of(run)
                reached = run.last_offset
        self._after = until = max(until, reached)
        return self._chunk(asked, until, runs, missing)

    def _chunk(self, asked: int, until: int, runs: list[Run], missing: list[Missing]) -> Chunk:
        past, gaps = self._past, self._gaps + self._log.take_gaps(until)
        missing[:0], self._gaps, self._missing = self._missing, [], []
        self._is_doubtful = self._is_doubtful or bool(gaps)
        is_at_head = until == past.head
        if is_at_head and self._is_doubtful:
            missing += self._find_lost(until)
            self._is_doubtful = False
        alive, expired = sift(runs, past.clock.monotonic())
        served = sum(run.count for run in alive)
        statement = Statement(
            past.cursor(asked), past.cursor(until), served, (*missing, *expired), is_at_head, tuple(gaps)
        )
        return Chunk(tuple(alive), statement)

    # What is missing

    def _note_run(self, run: Run, missing: list[Missing]) -> None:
        sequence, offset = self._served.get(run.topic) or self._recall(run)
        if run.sequence > (sequence or 0) + 1:
            first = None if sequence is None else sequence + 1
            missing.append(Missing(run.topic, first, run.sequence - 1, self._explain(run, offset)))
        self._served[run.topic] = (run.last_sequence, run.last_offset)

    def _recall(self, run: Run) -> tuple[int | None, int]:
        """The last sequence of a topic before the replay began, if it is known, and where it began."""
        topic, start = self._past.topics.get(run.topic), max(self._start, self._floor_of(run.topic))
        if run.topic in self._followed:
            is_doubtful = gone_offset(self._followed[run.topic]) > start
        else:
            is_doubtful = self._log.has_gap(start, run.offset)
        if not is_doubtful:
            return run.sequence - 1, start
        return None if topic is None else sequence_at(topic.runs, start), start

    def _explain(self, run: Run, after: int) -> Reason:
        """Why messages before a run are not there."""
        topic = self._followed.get(run.topic)
        return self._log.explain(after, run.offset) if topic is None else reason_of(topic)

    def _note_loss(self, loss: Loss, missing: list[Missing]) -> None:
        served = self._served.get(loss.topic)
        first = loss.first if served is None else served[0] + 1
        if loss.last >= (first or 1):
            missing.append(Missing(loss.topic, first, loss.last, loss.reason))
            self._served[loss.topic] = (loss.last, self._start)

    def _find_lost(self, head: int) -> Iterator[Missing]:
        """Report messages that the log lost and no later message reveals."""
        for name, (sequence, offset) in self._served.items():
            topic = self._past.topics.get(name)
            last = self._expected.get(name, 0)
            if topic is not None and topic.rules.is_kept:
                last = max(last, topic.sequence)
            if last > sequence:
                yield Missing(name, sequence + 1, last, self._log.explain(offset, head + 1))
                self._served[name] = (last, head)


def sift(runs: Iterable[Run], now: float) -> tuple[list[Run], list[Missing]]:
    """Split what is still alive from what has expired."""
    alive: list[Run] = []
    missing: list[Missing] = []
    for run in runs:
        if not run.is_expired(now):
            alive.append(run)
            continue
        first = run.sequence
        if missing and missing[-1].topic == run.topic and missing[-1].last == first - 1:
            first = missing.pop().first or first
        missing.append(Missing(run.topic, first, run.last_sequence, Reason.EXPIRED))
    return alive, missing
