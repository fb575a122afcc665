"""Metrics of the server as plain values, read from where they are counted.

`json_format.py` and `prometheus.py` render them. This module is loaded when the server starts, so it imports
nothing slow.
"""

import time
from asyncio import sleep
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import reduce
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from penstock.core.broker import Broker
from penstock.core.diagnostics.ledger import LOSSES
from penstock.core.ports.archive import Archive
from penstock.core.runtime.clock import Clock, SystemClock
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.audience import Audience
from penstock.core.topics.topic import LossKind, Topic
from penstock.model import Reason
from penstock.telemetry.history import RateHistory
from penstock.telemetry.labels import DELIVERED, PUBLISHED, Labels, Sums
from penstock.telemetry.samples import LoopLag, LoopStall, RecentTimes
from penstock.telemetry.settings import MetricsSettings

STEPS_A_SLICE = 5_000
"""Sessions or subscriptions visited in one turn of the event loop."""


class Door(Protocol):
    """Door, as far as metrics need it."""

    @property
    def name(self) -> str: ...

    @property
    def connections(self) -> Sized: ...


@runtime_checkable
class DoorWithMetrics(Protocol):
    """Door with counters of its own."""

    def figures(self) -> dict[str, int]:
        """Counters and gauges by name."""
        ...


class PasswordCheckFigures(Protocol):
    """Password checks, as far as metrics need them."""

    @property
    def waiting(self) -> int:
        """Number of checks that wait for their turn."""
        ...

    @property
    def refused(self) -> Mapping[str, int]:
        """Refused checks by reason."""
        ...


class OutboxTotals(Struct):
    """Messages queued for connected subscribers that lag."""

    subscribers: int = 0
    messages: int = 0
    bytes: int = 0
    largest: int = 0
    """Messages in the outbox with the most."""
    saturation: float = 0.0
    """Fill level of the fullest outbox, from 0 to 1; few large messages may fill one too."""


class Rings(Struct):
    """One partition of the rings."""

    rings: int
    bytes: int
    limit_bytes: int
    evictions: int


class ServerMetrics:
    """All metrics of a server."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock | None = None,
        settings: MetricsSettings | None = None,
        *,
        version: str = "",
        doors: Iterable[Door] = (),
        archive: Archive | None = None,
        stored_bytes: Callable[[], int] | None = None,
        queued_bytes: Callable[[], int] | None = None,
        lag: LoopLag | None = None,
        password_checks: PasswordCheckFigures | None = None,
        stall: LoopStall | None = None,
    ) -> None:
        """Args:
        stored_bytes: returns the size of the log on disk, if there is one.
        queued_bytes: returns the size of what waits for the disk, if there is one.
        lag: measures the event loop, if enabled.
        stall: measures its longest turn, if enabled.
        """
        self.broker = broker
        self.settings = settings or MetricsSettings()
        self.version = version
        self.doors: Sequence[Door] = tuple(doors)
        self.archive = archive
        self.stored_bytes = stored_bytes
        self.queued_bytes = queued_bytes
        self.lag = lag
        self.password_checks = password_checks
        self.stall = stall
        self.labels = Labels(broker.topics, self.settings.topics)
        self.started_at = time.time()
        self._clock = clock or SystemClock()
        self._began_at = self._clock.monotonic()
        self.latency = RecentTimes(broker.topic_stats.latency, self._clock)
        self.loop_lag = None if lag is None else RecentTimes(lag.seconds, self._clock)
        self.history = RateHistory(self, self._clock)
        if lag is not None:
            lag.on_sample = self._sample

    def configure(self, settings: MetricsSettings) -> None:
        """Apply another topic limit; labels that were assigned stay."""
        self.settings = settings
        self.labels.limit = settings.topics

    @property
    def outbox_limit(self) -> int:
        """Messages that fit into an outbox."""
        return self.broker.settings.outbox.messages

    @property
    def uptime_s(self) -> float:
        """Uptime of the server."""
        return self._clock.monotonic() - self._began_at

    @property
    def connected(self) -> int:
        """Sessions with a connection."""
        counters = self.broker.counters
        return counters.connections - counters.disconnections

    @property
    def subscriptions(self) -> int:
        """Subscriptions of all sessions; a session with two counts twice."""
        counters = self.broker.counters
        return counters.subscriptions_added - counters.subscriptions_removed

    def total(self) -> Sums:
        """Sums over all topics ever, including deliveries on the server's own topics."""
        sums: Sums = Counter(self.broker.topic_stats.lost)
        sums[PUBLISHED] = self.broker.counters.published
        sums[DELIVERED] = self.broker.counters.delivered
        return sums

    def rings(self) -> Iterator[Rings]:
        """Rings by partition."""
        for partition in self.broker.topics.rings.partitions:
            yield Rings(len(partition), partition.reserved_bytes, partition.limit_bytes, partition.evictions)

    def holds(self) -> tuple[int, int]:
        """Number of retention holds, and the lag of the slowest one in offsets."""
        if self.archive is None:
            return 0, 0
        holds, last = self.archive.holds.listing(), self.broker.log.last_offset
        return len(holds), max((last - hold.offset for hold in holds if hold.offset < last), default=0)

    async def outboxes(self) -> OutboxTotals:
        """Totals of the outboxes of lagging subscribers, a slice per turn of the loop."""
        watched = list(self.broker.slow_consumers.watched)
        totals = OutboxTotals(subscribers=len(watched))
        for start in range(0, len(watched), STEPS_A_SLICE):
            for outbox in [session.outbox for session in watched[start : start + STEPS_A_SLICE]]:
                if outbox:
                    totals.messages += outbox.messages
                    totals.bytes += outbox.bytes
                    totals.largest = max(totals.largest, outbox.messages)
                    totals.saturation = max(totals.saturation, outbox.saturation)
            await sleep(0)
        return totals

    def _sample(self) -> None:
        """Sample the histograms and the history; called twice a second."""
        self.latency.sample()
        if self.loop_lag is not None:
            self.loop_lag.sample()
        self.history.sample()

    def door_metrics(self) -> dict[str, int]:
        """Counters of the doors, by their own names."""
        found: dict[str, int] = {}
        for door in self.doors:
            if isinstance(door, DoorWithMetrics):
                found.update(door.figures())
        return found


class Depth(NamedTuple):
    """Maximum over several outboxes: messages, and fill level from 0 to 1."""

    messages: int
    saturation: float

    def with_(self, other: "Depth") -> "Depth":
        """Maximum of both."""
        return Depth(max(self.messages, other.messages), max(self.saturation, other.saturation))


EMPTY = Depth(0, 0.0)


class Audiences:
    """Subscribers and queue depths by topic, computed once per response."""

    def __init__(self, broker: Broker, depths: dict[str, Depth]) -> None:
        self._broker = broker
        self._depths = depths  # by filter
        self._sizes: dict[Audience[Session], int] = {}

    @classmethod
    async def of(cls, broker: Broker) -> "Audiences":
        """Visit lagging subscribers only, a slice per turn of the loop."""
        depths: dict[str, Depth] = {}
        steps = 0
        for session in list(broker.slow_consumers.watched):
            outbox = session.outbox
            depth = Depth(outbox.messages, outbox.saturation) if outbox else EMPTY
            for filter in session.subscriptions if outbox else ():
                depths[filter] = depth.with_(depths.get(filter, EMPTY))
            steps += 1 + len(session.subscriptions)
            if steps > STEPS_A_SLICE:
                steps = 0
                await sleep(0)
        return cls(broker, depths)

    def look_up(self, topic: Topic) -> tuple[int, Depth]:
        """Number of subscribers of a topic, and the depth of their fullest outbox."""
        audience = self._broker.audience_of(topic.name)
        size = self._sizes.get(audience)
        if size is None:
            size = self._sizes[audience] = len(audience)
        if not self._depths:
            return size, EMPTY
        filters = [group.filter for group in audience.groups] + [group.filter for group in audience.shared]
        return size, reduce(Depth.with_, (self._depths.get(filter, EMPTY) for filter in filters), EMPTY)


def dropped_of(sums: dict[LossKind, int] | Sums) -> int:
    """Messages that subscribers lost involuntarily."""
    return sum(count for loss, count in sums.items() if isinstance(loss, tuple) and loss[0] in LOSSES)


def expired_of(sums: dict[LossKind, int] | Sums) -> int:
    """Messages that expired before a subscriber got them."""
    return sum(count for loss, count in sums.items() if isinstance(loss, tuple) and loss[0] is Reason.EXPIRED)
