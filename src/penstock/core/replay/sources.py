"""Sources of a replay: the log for captured topics, rings for all others.

Both continue where the last chunk ended and yield runs in the order of offsets. A ring is read a few messages
ahead, and again only after these were served.
"""

from asyncio import create_task, sleep
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from sys import maxsize

from msgspec import Struct

from penstock.common.statement import Gap
from penstock.core.ports.log import LogReader, Span, Wanted
from penstock.core.topics.topic import Topic
from penstock.model import Reason
from penstock.runs import Run

NEVER_LOOKED = -1
NOWHERE = maxsize
"""The next offset of a source that has nothing."""
RUNS_AHEAD = 16
"""Runs of a ring that are read ahead while a replay passes over all rings."""
GAPS_KEPT = 1_000
LEAST_BYTES = 64
"""Least weight of a run in a chunk, so that small messages do not make it too large."""


class Loss(Struct, frozen=True, gc=False):
    """Messages of a topic that have left its ring before they could be read; the first may not be known."""

    offset: int
    """Of the last one."""
    topic: str
    first: int | None
    last: int
    reason: Reason


class RingSource:
    """One topic's ring, on the way from an offset to the head."""

    __slots__ = ("_after", "_has_more", "_items", "_sequence", "is_waiting", "seen", "topic")

    def __init__(self, topic: Topic, after: int) -> None:
        self.topic = topic
        self.seen = NEVER_LOOKED  # the topic's last sequence when its ring was last looked at
        self.is_waiting = False  # it has something that was not taken yet
        self._after = after
        self._sequence: int | None = None  # of the last message up to there, if that is known
        self._has_more = False
        self._items: list[Run | Loss] = []  # the next one last

    @property
    def next_offset(self) -> int:
        return self._items[-1].offset if self._items else NOWHERE

    def take(self) -> Run | Loss:
        """The next of what it has."""
        item = self._items.pop()
        if not self._items and (self._has_more or self.topic.sequence != self.seen):
            self.fill()
        return item

    def fill(self) -> None:
        """Look at the ring again, when everything is taken."""
        topic, runs = self.topic, self.topic.runs
        if self.seen == NEVER_LOOKED:
            self._sequence = sequence_at(runs, self._after)
        self.seen = topic.sequence
        runs = [run for run in runs if run.last_offset > self._after]
        if (gone := gone_offset(topic)) > self._after:
            self._lose(gone, runs[0].sequence - 1 if runs else topic.sequence)
        self._has_more = len(runs) > RUNS_AHEAD
        for run in runs[:RUNS_AHEAD]:
            rest = beyond(run, self._after)
            self._items.append(rest)
            self._after = rest.last_offset
            self._sequence = rest.last_sequence
        self._items.reverse()

    def _lose(self, gone: int, last: int) -> None:
        first = None if self._sequence is None else self._sequence + 1
        if last >= (first or 1):
            self._items.append(Loss(gone, self.topic.name, first, last, reason_of(self.topic)))
        self._after, self._sequence = gone, last


class RingSources:
    """The rings that a replay reads, merged."""

    def __init__(self, after: int) -> None:
        self.swept = after  # everything up to here that is still to be served is in the heap
        self._sources: list[RingSource] = []
        self._heap: list[tuple[int, int, RingSource]] = []
        self._number = 0

    def add(self, topic: Topic, after: int) -> RingSource:
        """Read one more ring."""
        source = RingSource(topic, after)
        self._sources.append(source)
        return source

    def news(self) -> list[RingSource]:
        """Those that have something new and nothing old."""
        return [each for each in self._sources if each.topic.sequence != each.seen and not each.is_waiting]

    def fill(self, sources: Iterable[RingSource]) -> None:
        """Look at some rings again."""
        for source in sources:
            source.fill()
            self._push(source)

    def sweep(self, head: int) -> None:
        """Look at every ring that has something new, if nothing is left of what was found before."""
        if self.is_swept:
            self.fill(self.news())
            self.swept = head

    @property
    def is_swept(self) -> bool:
        """Nothing is left of what was found in the last sweep."""
        return self.next_offset > self.swept

    @property
    def next_offset(self) -> int:
        return self._heap[0][0] if self._heap else NOWHERE

    def take(self) -> Run | Loss:
        """The next of what they have."""
        _, _, source = heappop(self._heap)
        item = source.take()
        self._push(source)
        return item

    def _push(self, source: RingSource) -> None:
        source.is_waiting = source.next_offset < NOWHERE
        if source.is_waiting:
            self._number += 1  # sources cannot be compared
            heappush(self._heap, (source.next_offset, self._number, source))


class LogSource:
    """The log, on the way from an offset to the head: what is committed, and then what is not yet."""

    def __init__(self, log: LogReader, after: int, wanted: Wanted, head: Callable[[], int]) -> None:
        self.until = after  # it has been read up to here
        self._log = log
        self._wanted = wanted
        self._head = head
        self._runs: deque[Run] = deque()
        self._gaps: deque[Gap] = deque(maxlen=GAPS_KEPT)
        self._unreported: list[Gap] = []

    @property
    def next_offset(self) -> int:
        return self._runs[0].offset if self._runs else NOWHERE

    def take(self) -> Run:
        """The next run."""
        return self._runs.popleft()

    async def fill(self, limit_bytes: int) -> None:
        """Read on, if nothing is left of what was read before; to the head if that is near.

        Without a pause between this and what follows, nothing that was published is overlooked.
        """
        if self.fill_now():
            return
        committed = self._log.last_offset
        self._take_span(await self._log.read(self.until, limit_bytes, self._wanted))
        if self.until >= self._log.last_offset:
            self.take_tail(self._log.uncommitted(self.until), self._head())
        elif self.until >= committed:
            await self._catch_up(limit_bytes)

    def fill_now(self) -> bool:
        """Read on without a wait; False if something is committed that has to be read first."""
        if not self._runs:
            if self.until < self._log.last_offset:
                return False
            self.take_tail(self._log.uncommitted(self.until), self._head())
        return True

    async def _catch_up(self, limit_bytes: int) -> None:
        """Read what was committed meanwhile, and keep in sight what is being published while we do.

        Under load there is always a commit that ends during a read. So each turn of the loop we take what is
        not committed yet: what is committed after that we have already.
        """
        committed, seen = self._log.last_offset, self._head()
        tail = self._log.uncommitted(committed)
        reading = create_task(self._log.read(self.until, limit_bytes, self._wanted))
        try:
            while not reading.done():
                await sleep(0)
                if self._log.last_offset > seen:
                    break  # commits were faster than we: what we have in sight ends here
                tail += self._log.uncommitted(seen)
                seen = self._head()
            self._take_span(await reading)
        finally:
            reading.cancel()
        if self.until >= committed:
            self.take_tail(tail, seen)

    def _take_span(self, span: Span) -> None:
        for gap in span.gaps:
            self._gaps.append(gap)
            self._unreported.append(gap)
        self._runs += (beyond(run, self.until) for run in span.runs)
        self.until = max(self.until, span.until)

    def take_tail(self, runs: Iterable[Run], head: int) -> None:
        """Take what is at hand of everything up to the head."""
        known: dict[str, bool] = {}
        for run in runs:
            if run.last_offset <= self.until:
                continue
            if run.topic not in known:
                known[run.topic] = self._wanted(run.topic)
            if known[run.topic]:
                self._runs.append(beyond(run, self.until))
        self.until = max(self.until, head)

    def take_gaps(self, until: int) -> list[Gap]:
        """The gaps up to an offset, each reported once."""
        reported = [
            Gap(gap.first, min(gap.last, until), gap.reason) for gap in self._unreported if gap.first <= until
        ]
        self._unreported = [
            Gap(max(gap.first, until + 1), gap.last, gap.reason)
            for gap in self._unreported
            if gap.last > until
        ]
        return reported

    def has_gap(self, after: int, before: int) -> bool:
        """Return whether messages between two offsets may be missing."""
        return any(gap.first < before and gap.last > after for gap in self._gaps)

    def explain(self, after: int, before: int) -> Reason:
        """Why messages between two offsets are not there."""
        for gap in reversed(self._gaps):
            if gap.first < before and gap.last > after:
                return gap.reason
        return Reason.RETENTION if after + 1 < self._log.first_offset else Reason.NEVER_STORED


def weight_of(run: Run) -> int:
    """Return the weight of a run in a chunk."""
    return max(len(run.slab), LEAST_BYTES)


def beyond(run: Run, offset: int) -> Run:
    """Return the part of a run after an offset."""
    skip = offset + 1 - run.offset
    return run if skip <= 0 else run.part(skip, run.count - skip)


def sequence_at(runs: Iterable[Run], offset: int) -> int | None:
    """Return the last sequence of a topic up to an offset, if its runs still show it."""
    known = None
    for run in runs:
        if run.offset <= offset:
            known = run.sequence + min(run.count - 1, offset - run.offset)
    return known


def gone_offset(topic: Topic) -> int:
    """The offset up to which messages of a topic may be in its ring no more."""
    return topic.gone_offset if topic.ring is None else topic.ring.evicted_offset


def reason_of(topic: Topic) -> Reason:
    """Why messages of a topic are in its ring no more."""
    if not topic.rules.has_ring:
        return Reason.NEVER_STORED
    # Without a ring its only message was a retained value, which stayed until it expired.
    return Reason.EXPIRED if topic.ring is None and topic.gone_offset else Reason.EVICTED
