"""Topic: sequence, rules, ring, retained value and audience of one name."""

from collections.abc import Callable
from typing import Any, Protocol

from penstock.common.histogram import Recent
from penstock.core.subscriptions.audience import NOBODY, Audience
from penstock.core.topics.retained_value import RetainedValue
from penstock.core.topics.ring import Ring
from penstock.core.topics.rules import TopicRules
from penstock.model import Policy, Reason
from penstock.runs import Run

STALE = -1
"""Version of an audience that has to be found again."""
DELETED = -2
"""Version of the audience of a deleted topic."""

LEAST_SPAN_US = 1_000_000
"""Least time over which a rate is measured; a burst of a moment says nothing about a second."""

LossKind = tuple[Reason, Policy | None]
"""Why something was lost, and by which policy."""


class Gone:
    """Last sequence and offset of a deleted topic."""

    __slots__ = ("offset", "sequence")

    def __init__(self, sequence: int, offset: int = 0) -> None:
        self.sequence = sequence
        self.offset = offset
        """Of its last message, if that had been in memory."""


class TopicStream(Protocol):
    """Stream of a topic, for which receivers compete. The topic only reports its runs to it."""

    @property
    def on_published(self) -> Callable[[Any, Run], None]:
        """Called with the stream for each run of the topic."""
        ...


class Topic:
    """One topic of the topic space."""

    __slots__ = (
        "audience",
        "delivered",
        "era",
        "gone_offset",
        "lost",
        "name",
        "recent",
        "retained",
        "ring",
        "rules",
        "sequence",
        "start",
        "stream",
        "version",
    )

    def __init__(self, name: str, rules: TopicRules) -> None:
        self.name = name
        self.rules = rules
        self.sequence = 0
        self.ring: Ring | None = None
        self.retained: RetainedValue | None = None
        self.audience: Audience[Any] = NOBODY  # of sessions; nothing here looks at them
        self.version = STALE  # of the router, when `audience` was found
        self.era = 0  # of its last message, for `activity.py`
        self.gone_offset = 0  # of a value that stood for the ring until it expired
        self.stream: TopicStream | None = None  # what receivers compete for
        # Since the server started, for `topic_stats.py`:
        self.start = 0  # the sequence at that time
        self.delivered = 0  # messages, once for each session that got them
        self.lost: dict[LossKind, int] | None = None
        self.recent: Recent | None = None

    @property
    def published(self) -> int:
        """Messages since start, or since the topic was made."""
        return self.sequence - self.start

    def begin_after(self, sequence: int) -> None:
        """Continue behind a sequence that was given before the start."""
        self.sequence = self.start = max(self.sequence, sequence)

    @property
    def runs(self) -> list[Run]:
        """The last messages. A retained value that is the only one so far stands for a ring."""
        if self.ring is not None:
            return self.ring.runs()
        is_kept = self.retained is not None and self.rules.has_ring
        return [self.retained.run(self.name)] if is_kept and self.retained is not None else []

    @property
    def newest(self) -> Run | None:
        """Run of the last message, if that is in memory."""
        if self.ring is not None and (run := self.ring.newest()) is not None:
            return run
        return None if self.retained is None else self.retained.run(self.name)

    def rate_since(self, wall_us: int, now_us: int) -> float:
        """Messages a second since a time, as far as the last messages reach back."""
        ring = self.ring
        if ring is None:
            count = int(self.retained is not None and self.retained.published_at >= wall_us)
        else:
            count, first_us = ring.count_since(wall_us)
            if count and count >= ring.messages and ring.evicted_offset:
                wall_us = first_us
        return count * 1_000_000 / max(now_us - wall_us, LEAST_SPAN_US)

    @property
    def last_offset(self) -> int:
        """Of its last message that is, or was, in memory; 0 if there was none."""
        if self.ring is not None:
            return max(self.ring.last_offset, self.ring.forgotten_offset)
        return self.gone_offset if self.retained is None else max(self.gone_offset, self.retained.offset)

    @property
    def is_deleted(self) -> bool:
        """The topic was deleted; cached references are looked up again."""
        return self.version == DELETED

    @property
    def is_unused(self) -> bool:
        """The topic has no value, history, stream or subscriber."""
        has_history = self.ring is not None and self.ring.messages > 0
        is_alone = self.audience is NOBODY and self.stream is None
        return self.retained is None and is_alone and not has_history
