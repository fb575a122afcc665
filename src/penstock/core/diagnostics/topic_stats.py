"""Statistics by topic since start: delivered, lost, expired, latency.

Topics hold their numbers; this module adds to them, once per stretch after its bytes were written. Runs are
visited one by one only where a stretch has several topics. Latency is sampled: one topic per stretch, and
in a turn with many stretches a rotating part of them.
"""

from collections.abc import Sequence

from penstock.common.histogram import Histogram, Recent, bucket_of
from penstock.common.topics import is_reserved
from penstock.core.runtime.clock import Clock
from penstock.core.runtime.tick import Stretch, TrainPart
from penstock.core.topics.registry import Registry
from penstock.core.topics.topic import LossKind, Topic
from penstock.model import Policy, Reason
from penstock.runs import Run

TOPICS_TIMED = 10_000
"""Topics that know how fast they are, each in up to 1 kB; all others share one record."""
FEW_RUNS = 4
"""In so short a stretch every topic gets its first entry, so that none has to wait long for it."""
TIMED_AT_ONCE = 8
"""Stretches of a flush whose topics note how fast they were; if there are more, they are others each time."""
STEP = 7_919
"""A prime, so that others have their turn each time."""


class TopicStats:
    """Adds to the numbers of topics."""

    def __init__(self, topics: Registry, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._timed = 0
        self._rest = Recent()
        self._turn = 0
        topics.notify_forgotten(self._on_forgotten)
        self.latency = Histogram()
        """From the first byte of a turn read to the last byte of its stretches written."""
        self.lost: dict[LossKind, int] = {}
        """Losses and expiries of all topics since start."""
        self.lost_reserved: dict[LossKind, int] = {}
        """The same of the server's own among them."""

    def note(self, stretches: list[Stretch]) -> None:
        """The stretches of a flush were written: add what was delivered of each, and how long it took."""
        if len(stretches) == 1 and len(stretches[0]) == 1 and stretches[0].part is None:
            self._note_lone(stretches[0])
            return
        now = self._clock.monotonic()
        read_at, seconds, bucket, entries = now, 0.0, 0, 0
        self._turn += 1
        skipped, timed = len(stretches) - TIMED_AT_ONCE, 0
        if skipped > 0:
            timed = -(self._turn * STEP % (skipped + 1))
        for stretch in stretches:
            reach = stretch.reach
            if reach is None:
                continue
            if stretch.read_at != read_at:
                if entries:
                    self.latency.add(bucket, seconds, entries)
                read_at, entries = stretch.read_at, 0
                seconds = now - read_at
                bucket = bucket_of(seconds)
            entries += 1
            runs = stretch.runs
            if stretch.part is not None:
                topic, messages = self._add_part(stretch.part, reach)
                if messages and len(stretch) <= FEW_RUNS:
                    self._begin_first(stretch.part.topics, bucket, seconds)
                if 0 <= timed < TIMED_AT_ONCE:
                    (topic.recent or self._begin(topic)).add(bucket, seconds, messages)
                timed += 1
                continue
            first, last = runs[0], runs[-1]
            span = last.offset - first.offset
            # Between two runs of a topic whose sequences are as far apart as their offsets is no other topic.
            if last.sequence - first.sequence == span and last.topic == first.topic:
                topic, messages = stretch.topic, span + last.count
                topic.delivered += reach * messages
            else:
                topic, messages = self._add_mixed(runs, reach, stretch.topic)
                if len(runs) <= FEW_RUNS:
                    self._begin_few(runs, bucket, seconds)
            if 0 <= timed < TIMED_AT_ONCE:
                (topic.recent or self._begin(topic)).add(bucket, seconds, messages)
            timed += 1
        if entries:
            self.latency.add(bucket, seconds, entries)

    def _note_lone(self, stretch: Stretch) -> None:
        """The same for a single run in half the time: on a quiet server every message is one."""
        if stretch.reach is None:
            return
        topic, count, latency = stretch.topic, stretch.runs[0].count, self.latency
        topic.delivered += stretch.reach * count
        seconds = self._clock.monotonic() - stretch.read_at
        bucket = bucket_of(seconds)
        latency.counts[bucket] += 1
        latency.seconds += seconds
        (topic.recent or self._begin(topic)).add(bucket, seconds, count)

    def _add_mixed(self, runs: list[Run], reach: int, first: Topic) -> tuple[Topic, int]:
        """Add a stretch of several topics.

        Returns the topic that stands for it, and its number of messages.
        """
        topic = self._topics.get(runs[self._turn * STEP % len(runs)].topic, first)
        before = topic.delivered
        if runs[-1].offset + runs[-1].count - runs[0].offset == len(runs):
            self._add_single(runs, reach)
        else:
            self.add(runs, reach)
        return topic, (topic.delivered - before) // reach if reach else 1

    def _begin_few(self, runs: list[Run], bucket: int, seconds: float) -> None:
        """Give the topics of a short stretch their first entries."""
        known = [self._topics.get(run.topic) for run in runs]
        self._begin_first([topic for topic in known if topic is not None], bucket, seconds)

    def _begin_first(self, topics: list[Topic], bucket: int, seconds: float) -> None:
        for topic in topics:
            if topic.recent is None:
                self._begin(topic).add(bucket, seconds, 1)

    def _add_part(self, part: TrainPart, reach: int) -> tuple[Topic, int]:
        """Add messages of a train.

        Returns the topic that stands for them, and how many of them it has.
        """
        topics = part.topics
        chosen = topics[self._turn * STEP % len(topics)]
        before = chosen.delivered
        for topic in topics:
            topic.delivered += reach
        return chosen, (chosen.delivered - before) // reach if reach else 1

    def add(self, runs: Sequence[Run], reach: int = 1) -> None:
        """Count these runs as delivered to this many sessions; a negative number corrects it."""
        find = self._topics.get
        for run in runs:
            topic = find(run.topic)
            if topic is not None:
                topic.delivered += run.count * reach

    def _add_single(self, runs: list[Run], reach: int) -> None:
        """The same for runs of one message each, which are most: the path of every message."""
        for topic in map(self._topics.get, [run.topic for run in runs]):
            if topic is not None:
                topic.delivered += reach

    def add_one(self, run: Run) -> None:
        """One session got a run."""
        topic = self._topics.get(run.topic)
        if topic is not None:
            topic.delivered += run.count

    def _begin(self, topic: Topic) -> Recent:
        """The record of a topic that has none yet."""
        if self._timed < TOPICS_TIMED:
            self._timed += 1
            topic.recent = Recent()
        else:
            topic.recent = self._rest
        return topic.recent

    def _on_forgotten(self, topic: Topic) -> None:
        if topic.recent is not None and topic.recent is not self._rest:
            self._timed -= 1

    def note_lost(self, name: str, count: int, reason: Reason, policy: Policy | None) -> None:
        """A session did not get messages of a topic, against its will or because they have expired."""
        loss = reason, policy
        self.lost[loss] = self.lost.get(loss, 0) + count
        if is_reserved(name):
            self.lost_reserved[loss] = self.lost_reserved.get(loss, 0) + count
        topic = self._topics.get(name)
        if topic is not None:
            if topic.lost is None:
                topic.lost = {}
            topic.lost[loss] = topic.lost.get(loss, 0) + count
