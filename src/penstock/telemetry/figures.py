"""The server's figures as plain values, read where they are kept; nothing is counted for this alone.

They are rendered by `memory_form.py` (JSON) and `prometheus.py`. This module is loaded when the server starts
and so imports nothing that takes long to load.
"""

import time
from asyncio import sleep
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from functools import reduce
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from penstock.core.archive import Archive
from penstock.core.audience import Audience
from penstock.core.broker import Broker
from penstock.core.clock import Clock, SystemClock
from penstock.core.ledger import LOSSES
from penstock.core.registry import Loss, Topic
from penstock.model import Reason
from penstock.telemetry.labels import DELIVERED, PUBLISHED, Labels, Sums
from penstock.telemetry.lag import LoopLag
from penstock.telemetry.lately import Lately
from penstock.telemetry.settings import MetricsSettings

STEPS_A_SLICE = 5_000
"""Sessions or subscriptions that are looked at in one turn of the loop, before others have theirs."""


class Door(Protocol):
    """A door, as far as its figures go."""

    @property
    def name(self) -> str: ...

    @property
    def connections(self) -> Sized: ...


@runtime_checkable
class Telling(Protocol):
    """A door that has figures of its own."""

    def figures(self) -> dict[str, int]:
        """Totals and numbers, by name."""
        ...


class Waiting(Struct):
    """What waits for those who are connected and lag behind."""

    subscribers: int = 0
    messages: int = 0
    bytes: int = 0
    largest: int = 0
    """Messages in the outbox that has most."""
    saturation: float = 0.0
    """How full the fullest outbox is, from 0 to 1; one of few large messages may be full too."""


class Rings(Struct):
    """One partition of the rings."""

    rings: int
    bytes: int
    limit_bytes: int
    evictions: int


class Figures:
    """Everything that can be told of a server in numbers."""

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
        lag: LoopLag | None = None,
    ) -> None:
        """Args:
        stored_bytes: how much the log takes on disk, if it does.
        lag: how late the loop is, if somebody measures that.
        """
        self.broker = broker
        self.settings = settings or MetricsSettings()
        self.version = version
        self.doors: Sequence[Door] = tuple(doors)
        self.archive = archive
        self.stored_bytes = stored_bytes
        self.lag = lag
        self.labels = Labels(broker.topics, self.settings.topics)
        self.started_at = time.time()
        self._clock = clock or SystemClock()
        self._began_at = self._clock.monotonic()
        self.latency = Lately(broker.tallies.latency, self._clock)
        self.loop_lag = None if lag is None else Lately(lag.seconds, self._clock)
        if lag is not None:
            lag.on_look = self._look

    def configure(self, settings: MetricsSettings) -> None:
        """Tell more or fewer topics apart from now on; labels that were given stay."""
        self.settings = settings
        self.labels.limit = settings.topics

    @property
    def outbox_limit(self) -> int:
        """Messages that fit into an outbox."""
        return self.broker.settings.outbox.messages

    @property
    def uptime_s(self) -> float:
        """How long the server runs."""
        return self._clock.monotonic() - self._began_at

    @property
    def connected(self) -> int:
        """Sessions that have a connection."""
        counters = self.broker.counters
        return counters.connections - counters.disconnections

    @property
    def subscriptions(self) -> int:
        """Subscriptions of all sessions; a session with two has two."""
        counters = self.broker.counters
        return counters.subscriptions_added - counters.subscriptions_removed

    def total(self) -> Sums:
        """What happened to all topics that ever were, the server's own included where something left."""
        sums: Sums = Counter(self.broker.tallies.lost)
        sums[PUBLISHED] = self.broker.counters.published
        sums[DELIVERED] = self.broker.counters.delivered
        return sums

    def rings(self) -> Iterator[Rings]:
        """The rings, by partition."""
        for partition in self.broker.topics.rings.partitions:
            yield Rings(len(partition), partition.reserved_bytes, partition.limit_bytes, partition.evictions)

    def holds(self) -> tuple[int, int]:
        """How many keep what they have not read, and how many offsets the slowest of them has not read."""
        if self.archive is None:
            return 0, 0
        holds, last = self.archive.holds.listing(), self.broker.log.last_offset
        return len(holds), max((last - hold.offset for hold in holds if hold.offset < last), default=0)

    async def waiting(self) -> Waiting:
        """What waits for those who lag behind; a slice of them in each turn of the loop."""
        watched = list(self.broker.slow.watched)
        waiting = Waiting(subscribers=len(watched))
        for start in range(0, len(watched), STEPS_A_SLICE):
            for outbox in [session.outbox for session in watched[start : start + STEPS_A_SLICE]]:
                if outbox:
                    waiting.messages += outbox.messages
                    waiting.bytes += outbox.bytes
                    waiting.largest = max(waiting.largest, outbox.messages)
                    waiting.saturation = max(waiting.saturation, outbox.saturation)
            await sleep(0)
        return waiting

    def _look(self) -> None:
        """Twice a second: remember what will be compared with what is told."""
        self.latency.look()
        if self.loop_lag is not None:
            self.loop_lag.look()

    def told_by_doors(self) -> dict[str, int]:
        """What doors have counted for themselves, by their own names."""
        told: dict[str, int] = {}
        for door in self.doors:
            if isinstance(door, Telling):
                told.update(door.figures())
        return told


class Depth(NamedTuple):
    """How much waits in one of several outboxes at most: messages, and by its limits, from 0 to 1."""

    messages: int
    saturation: float

    def with_(self, other: "Depth") -> "Depth":
        """The same of these outboxes and others."""
        return Depth(max(self.messages, other.messages), max(self.saturation, other.saturation))


EMPTY = Depth(0, 0.0)


class Crowds:
    """Who subscribes to a topic, and how much waits for them; looked up once for all topics of one answer."""

    def __init__(self, broker: Broker, depths: dict[str, Depth]) -> None:
        self._router = broker.router
        self._depths = depths  # by filter
        self._sizes: dict[Audience, int] = {}

    @classmethod
    async def of(cls, broker: Broker) -> "Crowds":
        """Look at those who lag behind, and no one else; a slice of them in each turn of the loop."""
        depths: dict[str, Depth] = {}
        steps = 0
        for session in list(broker.slow.watched):
            outbox = session.outbox
            depth = Depth(outbox.messages, outbox.saturation) if outbox else EMPTY
            for filter in session.subscriptions if outbox else ():
                depths[filter] = depth.with_(depths.get(filter, EMPTY))
            steps += 1 + len(session.subscriptions)
            if steps > STEPS_A_SLICE:
                steps = 0
                await sleep(0)
        return cls(broker, depths)

    def look(self, topic: Topic) -> tuple[int, Depth]:
        """How many subscribers a topic has, and how much waits for one of them at most."""
        audience = self._router.find_audience(topic.name)
        size = self._sizes.get(audience)
        if size is None:
            size = self._sizes[audience] = len(audience)
        if not self._depths:
            return size, EMPTY
        filters = [group.filter for group in audience.groups] + [group.filter for group in audience.shared]
        return size, reduce(Depth.with_, (self._depths.get(filter, EMPTY) for filter in filters), EMPTY)


def dropped_of(sums: dict[Loss, int] | Sums) -> int:
    """Messages that subscribers lost against their will."""
    return sum(count for loss, count in sums.items() if isinstance(loss, tuple) and loss[0] in LOSSES)


def expired_of(sums: dict[Loss, int] | Sums) -> int:
    """Messages that expired before a subscriber could get them."""
    return sum(count for loss, count in sums.items() if isinstance(loss, tuple) and loss[0] is Reason.EXPIRED)
