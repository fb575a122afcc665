"""View of `penstock top`: the figures of a server at one moment, and its rates since the poll before.

Pure functions of two samples; polling is in `watch.py`, drawing in `screen.py`. Counters only rise while a
server runs. After a restart there is no rate until the next sample.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

UPTIME = "uptime_seconds"


class Sample(NamedTuple):
    """Statistics of a server at one moment."""

    at: float
    """Seconds of a monotonic clock."""
    figures: Mapping[str, Any]


def part(figures: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at a path; empty if there is none."""
    found: Any = figures
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def figure(figures: Mapping[str, Any], *path: str) -> float | None:
    """The number at a path; None if there is none."""
    found = part(figures, *path[:-1]).get(path[-1])
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def was_restarted(before: Sample, after: Sample) -> bool:
    """Return whether the server was restarted between two samples."""
    return (figure(after.figures, UPTIME) or 0.0) < (figure(before.figures, UPTIME) or 0.0)


def per_second(before: Sample | None, after: Sample, *path: str) -> float | None:
    """Rate of the counter at a path; None if these samples give none."""
    if before is None or was_restarted(before, after):
        return None
    old, new = figure(before.figures, *path), figure(after.figures, *path)
    return None if old is None or new is None else _rate(old, new, after.at - before.at)


def rates_by_key(
    before: Sample | None, after: Sample, *path: str, counter: str | None = None
) -> dict[str, float]:
    """Rate of each counter in an object; a new counter has risen from zero.

    Args:
        counter: name of the counter, if the entries are objects themselves, such as topics.
    """
    if before is None or was_restarted(before, after):
        return {}
    old = part(before.figures, *path)
    rates: dict[str, float] = {}
    for key in (new := part(after.figures, *path)):
        where = (key,) if counter is None else (key, counter)
        count = figure(new, *where)
        if count is not None:
            rate = _rate(figure(old, *where) or 0.0, count, after.at - before.at)
            rates |= {} if rate is None else {key: rate}
    return rates


def _rate(old: float, new: float, seconds: float) -> float | None:
    return (new - old) / seconds if new >= old and seconds > 0 else None


class Order(StrEnum):
    """Sort order of the topics: a column, the largest first; names in alphabetical order."""

    PUBLISHED = "published"
    DELIVERED = "delivered"
    DROPPED = "dropped"
    DEPTH = "depth"
    LATENCY = "latency"
    NAME = "name"


class Door(Struct, frozen=True, kw_only=True):
    """Rates of one door."""

    door: str
    published_per_s: float | None
    delivered_per_s: float | None
    connections: int | None
    """None for streams, which use single HTTP requests."""


class TopicLine(Struct, frozen=True, kw_only=True):
    """One topic."""

    topic: str
    published_per_s: float | None
    delivered_per_s: float | None
    dropped_per_s: float | None
    published: int
    subscribers: int
    queue_depth: int
    queue_max_size: int
    latency_avg_ms: float
    latency_p95_ms: float
    latency_p99_ms: float


class Loss(Struct, frozen=True, kw_only=True):
    """Messages that were not delivered for one reason."""

    reason: str
    per_s: float | None
    total: int


class View(Struct, frozen=True, kw_only=True):
    """A server at one moment."""

    at: datetime
    address: str
    version: str
    node_id: str
    uptime_s: float
    clients: int
    subscriptions: int
    filters: int | None
    topics: int
    retained: int
    connections: Mapping[str, int]
    cpu_percent: float | None
    """Of one core, since the sample before."""
    memory_bytes: int | None
    open_files: int | None
    max_files: int | None
    loop_lag_p99_ms: float | None
    log: Mapping[str, Any]
    published: int
    delivered: int
    published_per_s: float | None
    delivered_per_s: float | None
    dropped_per_s: float | None
    expired_per_s: float | None
    received_bytes_per_s: float | None
    sent_bytes_per_s: float | None
    latency_ms: Mapping[str, float] | None
    """None if nothing was delivered recently."""
    doors: Sequence[Door]
    busiest: Sequence[TopicLine]
    slow: Sequence[Mapping[str, Any]]
    not_delivered: Sequence[Loss]


def make_view(
    before: Sample | None,
    after: Sample,
    slow: Sequence[Mapping[str, Any]],
    *,
    address: str,
    at: datetime,
    order: Order,
) -> View:
    """Compute the view of a sample; without an earlier one there are no rates."""
    figures = after.figures

    def rate(*path: str) -> float | None:
        return per_second(before, after, *path)

    def whole(*path: str) -> int | None:
        found = figure(figures, *path)
        return None if found is None else int(found)

    cpu = rate("process", "cpu_seconds")
    return View(
        at=at,
        address=address,
        version=str(figures.get("version", "")),
        node_id=str(figures.get("node_id", "")),
        uptime_s=figure(figures, "uptime_seconds") or 0.0,
        clients=whole("global", "connected_clients") or 0,
        subscriptions=whole("global", "active_subscribers") or 0,
        filters=whole("global", "filters"),
        topics=whole("global", "active_topics") or 0,
        retained=whole("global", "retained_messages") or 0,
        connections=part(figures, "connections"),
        cpu_percent=None if cpu is None else round(cpu * 100, 1),
        memory_bytes=whole("process", "memory_bytes"),
        open_files=whole("process", "open_files"),
        max_files=whole("process", "max_files"),
        loop_lag_p99_ms=figure(figures, "loop_lag_ms", "p99"),
        log=part(figures, "log"),
        published=whole("global", "total_published") or 0,
        delivered=whole("global", "total_delivered") or 0,
        published_per_s=rate("global", "total_published"),
        delivered_per_s=rate("global", "total_delivered"),
        dropped_per_s=rate("global", "total_dropped"),
        expired_per_s=rate("global", "total_expired"),
        received_bytes_per_s=rate("bytes", "received"),
        sent_bytes_per_s=rate("bytes", "sent"),
        latency_ms=_latency(figures),
        doors=_doors(before, after),
        busiest=_topics(before, after, order),
        slow=slow,
        not_delivered=_losses(before, after),
    )


def _latency(figures: Mapping[str, Any]) -> Mapping[str, float] | None:
    latency = part(figures, "latency_ms")
    return latency if latency.get("entries", 1) else None


def _doors(before: Sample | None, after: Sample) -> list[Door]:
    published = rates_by_key(before, after, "doors", counter="published")
    delivered = rates_by_key(before, after, "doors", counter="delivered")
    connections = part(after.figures, "connections")
    return [
        Door(
            door=door,
            published_per_s=published.get(door),
            delivered_per_s=delivered.get(door),
            connections=connections.get(door),
        )
        for door in part(after.figures, "doors")
    ]


def _topics(before: Sample | None, after: Sample, order: Order) -> list[TopicLine]:
    published, delivered, dropped = (
        rates_by_key(before, after, "topics", counter=f"messages_{what}")
        for what in ("published", "delivered", "dropped")
    )
    lines = [
        TopicLine(
            topic=name,
            published_per_s=published.get(name),
            delivered_per_s=delivered.get(name),
            dropped_per_s=dropped.get(name),
            published=topic["messages_published"],
            subscribers=topic["subscriber_count"],
            queue_depth=topic["queue_depth"],
            queue_max_size=topic["queue_max_size"],
            latency_avg_ms=topic["latency_ms"]["avg"],
            latency_p95_ms=topic["latency_ms"]["p95"],
            latency_p99_ms=topic["latency_ms"]["p99"],
        )
        for name, topic in part(after.figures, "topics").items()
    ]
    return sorted(lines, key=_KEYS[order])


def _losses(before: Sample | None, after: Sample) -> list[Loss]:
    rates = rates_by_key(before, after, "not_delivered")
    losses = [
        Loss(reason=reason, per_s=rates.get(reason), total=total)
        for reason, total in part(after.figures, "not_delivered").items()
    ]
    return sorted(losses, key=lambda loss: (-(loss.per_s or 0.0), -loss.total, loss.reason))


Key = Callable[[TopicLine], tuple[float | str, ...]]
_KEYS: Mapping[Order, Key] = {
    Order.PUBLISHED: lambda line: (-(line.published_per_s or 0.0), -line.published, line.topic),
    Order.DELIVERED: lambda line: (-(line.delivered_per_s or 0.0), -line.published, line.topic),
    Order.DROPPED: lambda line: (-(line.dropped_per_s or 0.0), -line.published, line.topic),
    Order.DEPTH: lambda line: (-line.queue_depth, -(line.published_per_s or 0.0), line.topic),
    Order.LATENCY: lambda line: (-line.latency_p95_ms, -(line.published_per_s or 0.0), line.topic),
    Order.NAME: lambda line: (line.topic,),
}
"""Sort key of each order; equal lines are sorted by name, so that they do not jump."""
