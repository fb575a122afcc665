"""The server's figures as plain values, read where they are kept; nothing is counted for this alone.

They are rendered by `memory_form.py` (JSON) and `prometheus.py`. This module is loaded when the server starts
and so imports nothing that takes long to load.
"""

import time
from asyncio import sleep
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Protocol, runtime_checkable

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
    """Messages in the fullest outbox."""


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
        self.outbox_limit = broker.settings.outbox.messages
        self.started_at = time.time()
        self._clock = clock or SystemClock()
        self._began_at = self._clock.monotonic()

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
            await sleep(0)
        return waiting

    def told_by_doors(self) -> dict[str, int]:
        """What doors have counted for themselves, by their own names."""
        told: dict[str, int] = {}
        for door in self.doors:
            if isinstance(door, Telling):
                told.update(door.figures())
        return told


class Crowds:
    """Who subscribes to a topic, and how much waits for them; looked up once for all topics of one answer."""

    def __init__(self, broker: Broker, depths: dict[str, int]) -> None:
        self._router = broker.router
        self._depths = depths  # by filter: messages in the fullest outbox
        self._sizes: dict[Audience, int] = {}

    @classmethod
    async def of(cls, broker: Broker) -> "Crowds":
        """Look at those who lag behind, and no one else; a slice of them in each turn of the loop."""
        depths: dict[str, int] = {}
        steps = 0
        for session in list(broker.slow.watched):
            depth = len(session.outbox) if session.outbox else 0
            for filter in session.subscriptions if depth else ():
                depths[filter] = max(depth, depths.get(filter, 0))
            steps += 1 + len(session.subscriptions)
            if steps > STEPS_A_SLICE:
                steps = 0
                await sleep(0)
        return cls(broker, depths)

    def look(self, topic: Topic) -> tuple[int, int]:
        """How many subscribers a topic has, and how many messages the fullest of their outboxes has."""
        audience = self._router.find_audience(topic.name)
        size = self._sizes.get(audience)
        if size is None:
            size = self._sizes[audience] = len(audience)
        if not self._depths:
            return size, 0
        filters = [group.filter for group in audience.groups] + [group.filter for group in audience.shared]
        return size, max((self._depths.get(filter, 0) for filter in filters), default=0)


def dropped_of(sums: dict[Loss, int] | Sums) -> int:
    """Messages that subscribers lost against their will."""
    return sum(count for loss, count in sums.items() if isinstance(loss, tuple) and loss[0] in LOSSES)


def expired_of(sums: dict[Loss, int] | Sums) -> int:
    """Messages that expired before a subscriber could get them."""
    return sum(count for loss, count in sums.items() if isinstance(loss, tuple) and loss[0] is Reason.EXPIRED)
