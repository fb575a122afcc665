"""What is told of the server as a whole, in JSON: by door, by reason, and of each thing that has a limit."""

from msgspec import Struct

from penstock.model import Door
from penstock.telemetry.figures import Figures
from penstock.telemetry.lately import Lately
from penstock.telemetry.process import look

CLIENT_DOORS = (Door.MQTT, Door.SIDECAR, Door.WEB, Door.STREAMS)
"""Where messages of clients come in and go out."""


class DoorPart(Struct):
    """Messages of clients since the server started, by the door they came in at and went out at."""

    published: int
    delivered: int
    """Once for each who got it."""


class OutboxPart(Struct):
    """What waits for those who are connected and lag behind, and who waits for them."""

    lagging_subscribers: int
    """Something waits for them at this moment."""
    slow_subscribers: int
    messages: int
    bytes: int
    largest_messages: int
    """Messages in the outbox that has most."""
    largest_saturation: float
    """How full the fullest outbox is, by messages or by bytes: from 0 to 1."""
    limit_messages: int
    """Messages that fit into one."""
    publishers_held: int
    """Publishers that wait for a subscriber with the policy `block`, now."""
    publisher_holds: int
    """How often one had to, since the server started."""


class LatencyPart(Struct):
    """What a message took in the last ten seconds, from the first byte read to the last byte written."""

    avg: float
    p50: float
    p95: float
    p99: float
    entries: int
    """How many were timed; if none was, the others are zero."""


class LagPart(Struct):
    """How late the loop was in the last ten seconds with what was due."""

    avg: float
    p99: float


class ProcessPart(Struct):
    """What the operating system says; null is what it cannot tell."""

    cpu_seconds: float
    memory_bytes: int | None
    open_files: int | None
    max_files: int | None


class RingPart(Struct):
    """The last messages of topics, in memory."""

    topics: int
    """That have a ring."""
    bytes: int
    limit_bytes: int
    evictions: int
    """Rings that made room for others, since the server started."""


class LogPart(Struct):
    """The log, and those who keep what they have not read."""

    durable: bool
    failing: bool
    """Nothing can be stored at present."""
    epoch: int
    first_offset: int
    last_offset: int
    stored_bytes: int | None
    """What it takes on disk, if it is there."""
    holds: int
    hold_lag_messages: int
    """Offsets that the slowest of them has not read yet."""


class StreamPart(Struct):
    """Streams, and who waits at them."""

    known: int
    messages: int
    waiting_sends: int
    waiting_receives: int


class BytePart(Struct):
    """Bytes from and to clients since the server started."""

    received: int
    sent: int


class Overview(Struct, kw_only=True):
    """Everything but the topics."""

    doors: dict[str, DoorPart]
    connections: dict[str, int]
    """Open now, by door; `web` is `/ws`, and `http` are all others at the HTTP port."""
    not_delivered: dict[str, int]
    """Messages that a subscriber did not get since the server started, by reason."""
    outboxes: OutboxPart
    latency_ms: LatencyPart
    loop_lag_ms: LagPart
    process: ProcessPart
    rings: RingPart
    log: LogPart
    streams: StreamPart
    bytes: BytePart
    version: str
    node_id: str


async def survey(figures: Figures) -> Overview:
    """Look at the whole server; those who lag behind in slices, and the rest in one turn of the loop."""
    outboxes = await _outboxes(figures)
    seen = figures.broker.counters
    return Overview(
        doors={door: DoorPart(seen.published_at[door], seen.delivered_at[door]) for door in CLIENT_DOORS},
        connections={door.name: len(door.connections) for door in figures.doors},
        not_delivered={str(reason): count for reason, count in figures.broker.ledger.counts.items()},
        outboxes=outboxes,
        latency_ms=_latency(figures.latency),
        loop_lag_ms=_lag(figures.loop_lag),
        process=_process(),
        rings=_rings(figures),
        log=_log(figures),
        streams=_streams(figures),
        bytes=BytePart(seen.bytes_received, seen.bytes_sent),
        version=figures.version,
        node_id=figures.broker.node_id,
    )


async def _outboxes(figures: Figures) -> OutboxPart:
    waiting, broker = await figures.waiting(), figures.broker
    return OutboxPart(
        lagging_subscribers=waiting.subscribers,
        slow_subscribers=broker.slow.count,
        messages=waiting.messages,
        bytes=waiting.bytes,
        largest_messages=waiting.largest,
        largest_saturation=round(waiting.saturation, 4),
        limit_messages=figures.outbox_limit,
        publishers_held=broker.keeping.holding.held,
        publisher_holds=broker.keeping.holding.held_total,
    )


def _latency(times: Lately) -> LatencyPart:
    count, mean_s, shares = times.times(0.5, 0.95, 0.99)
    p50, p95, p99 = map(in_ms, shares)
    return LatencyPart(in_ms(mean_s), p50, p95, p99, count)


def _lag(times: Lately | None) -> LagPart:
    if times is None:
        return LagPart(0.0, 0.0)
    _, mean_s, (p99_s,) = times.times(0.99)
    return LagPart(in_ms(mean_s), in_ms(p99_s))


def _process() -> ProcessPart:
    seen = look()
    return ProcessPart(round(seen.cpu_s, 3), seen.resident_bytes, seen.open_files, seen.max_files)


def _rings(figures: Figures) -> RingPart:
    rings = list(figures.rings())
    return RingPart(
        topics=sum(each.rings for each in rings),
        bytes=sum(each.bytes for each in rings),
        limit_bytes=sum(each.limit_bytes for each in rings),
        evictions=sum(each.evictions for each in rings),
    )


def _log(figures: Figures) -> LogPart:
    log = figures.broker.log
    holds, behind = figures.holds()
    return LogPart(
        durable=log.is_durable,
        failing=log.failure is not None,
        epoch=log.epoch,
        first_offset=log.first_offset,
        last_offset=log.last_offset,
        stored_bytes=None if figures.stored_bytes is None else figures.stored_bytes(),
        holds=holds,
        hold_lag_messages=behind,
    )


def _streams(figures: Figures) -> StreamPart:
    streams = figures.broker.streams
    seen = streams.counters
    return StreamPart(len(streams), streams.buffers.messages, seen.senders_waiting, seen.receivers_waiting)


def in_ms(seconds: float) -> float:
    """Milliseconds, no finer than a microsecond."""
    return round(seconds * 1000, 3)
