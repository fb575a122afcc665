"""Metrics of the server as a whole, as JSON: by door, by reason, and of everything with a limit."""

from msgspec import Struct

from penstock.model import Door
from penstock.telemetry.metrics import ServerMetrics
from penstock.telemetry.samples import LoopStall, RecentTimes, read_process

CLIENT_DOORS = (Door.MQTT, Door.SIDECAR, Door.WEB, Door.STREAMS)
"""Doors through which clients publish and receive."""


class DoorPart(Struct):
    """Messages of clients since the start, published and delivered through one door."""

    published: int
    delivered: int
    """Once per subscriber."""


class OutboxPart(Struct):
    """Messages queued for connected subscribers, and publishers blocked by them."""

    lagging_subscribers: int
    """Subscribers with queued messages now."""
    slow_subscribers: int
    messages: int
    bytes: int
    borrowed_bytes: int
    """Part of `outbox.shared_bytes` that outboxes have borrowed for a burst."""
    largest_messages: int
    """Messages in the outbox with the most."""
    largest_saturation: float
    """Fill level of the fullest outbox, by messages or by bytes, from 0 to 1."""
    limit_messages: int
    """Messages that fit into one."""
    publishers_held: int
    """Publishers blocked now by a subscriber with the policy `block`."""
    publisher_holds: int
    """Number of times a publisher was blocked since the start."""


class LatencyPart(Struct):
    """Latency of the last ten seconds, from the first byte read to the last byte written."""

    avg: float
    p50: float
    p95: float
    p99: float
    entries: int
    """Number of measured messages; if 0, the others are zero."""


class LagPart(Struct):
    """Lag of the event loop in the last ten seconds, and its longest turn."""

    avg: float
    p99: float
    stall: float = 0.0
    """CPU time of the longest turn in the last 30 to 60 seconds."""


class ProcessPart(Struct):
    """Resources of the process; null where the operating system does not report them."""

    cpu_seconds: float
    memory_bytes: int | None
    open_files: int | None
    max_files: int | None


class RingPart(Struct):
    """Recent messages of topics, in memory."""

    topics: int
    """Topics with a ring."""
    bytes: int
    limit_bytes: int
    evictions: int
    """Rings evicted to free memory, since the start."""


class LogPart(Struct):
    """Log and retention holds."""

    durable: bool
    failing: bool
    """Messages cannot be stored at present."""
    epoch: int
    first_offset: int
    last_offset: int
    stored_bytes: int | None
    """Size on disk, if durable."""
    queued_bytes: int | None
    """Size in memory of what waits for its commit, if durable."""
    holds: int
    hold_lag_messages: int
    """Offsets that the slowest hold has not read yet."""


class StreamPart(Struct):
    """Streams, and pending sends and receives."""

    known: int
    messages: int
    waiting_sends: int
    waiting_receives: int


class BytePart(Struct):
    """Bytes from and to clients since the start."""

    received: int
    sent: int


class Overview(Struct, kw_only=True):
    """Everything but the topics."""

    doors: dict[str, DoorPart]
    connections: dict[str, int]
    """Open connections by door; `web` is `/ws`, and `http` are all others at the HTTP port."""
    not_delivered: dict[str, int]
    """Undelivered messages since the start by reason, counted once per subscriber."""
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


async def survey(metrics: ServerMetrics) -> Overview:
    """Read the metrics of the whole server; lagging subscribers in slices, the rest at once."""
    outboxes = await _outboxes(metrics)
    seen = metrics.broker.counters
    return Overview(
        doors={door: DoorPart(seen.published_at[door], seen.delivered_at[door]) for door in CLIENT_DOORS},
        connections={door.name: len(door.connections) for door in metrics.doors},
        not_delivered={str(reason): count for reason, count in metrics.broker.ledger.counts.items()},
        outboxes=outboxes,
        latency_ms=_latency(metrics.latency),
        loop_lag_ms=_lag(metrics.loop_lag, metrics.stall),
        process=_process(),
        rings=_rings(metrics),
        log=_log(metrics),
        streams=_streams(metrics),
        bytes=BytePart(seen.bytes_received, seen.bytes_sent),
        version=metrics.version,
        node_id=metrics.broker.node_id,
    )


async def _outboxes(metrics: ServerMetrics) -> OutboxPart:
    totals, broker = await metrics.outboxes(), metrics.broker
    return OutboxPart(
        lagging_subscribers=totals.subscribers,
        slow_subscribers=broker.slow_consumers.count,
        messages=totals.messages,
        bytes=totals.bytes,
        borrowed_bytes=broker.borrowed_bytes,
        largest_messages=totals.largest,
        largest_saturation=round(totals.saturation, 4),
        limit_messages=metrics.outbox_limit,
        publishers_held=broker.backpressure.blocked,
        publisher_holds=broker.backpressure.blocked_total,
    )


def _latency(times: RecentTimes) -> LatencyPart:
    count, mean_s, shares = times.times(0.5, 0.95, 0.99)
    p50, p95, p99 = map(in_ms, shares)
    return LatencyPart(in_ms(mean_s), p50, p95, p99, count)


def _lag(times: RecentTimes | None, stall: LoopStall | None) -> LagPart:
    stall_ms = 0.0 if stall is None else in_ms(stall.recent_s())
    if times is None:
        return LagPart(0.0, 0.0, stall_ms)
    _, mean_s, (p99_s,) = times.times(0.99)
    return LagPart(in_ms(mean_s), in_ms(p99_s), stall_ms)


def _process() -> ProcessPart:
    process = read_process()
    return ProcessPart(round(process.cpu_s, 3), process.resident_bytes, process.open_files, process.max_files)


def _rings(metrics: ServerMetrics) -> RingPart:
    rings = list(metrics.rings())
    return RingPart(
        topics=sum(each.rings for each in rings),
        bytes=sum(each.bytes for each in rings),
        limit_bytes=sum(each.limit_bytes for each in rings),
        evictions=sum(each.evictions for each in rings),
    )


def _log(metrics: ServerMetrics) -> LogPart:
    log = metrics.broker.log
    holds, behind = metrics.holds()
    return LogPart(
        durable=log.is_durable,
        failing=log.failure is not None,
        epoch=log.epoch,
        first_offset=log.first_offset,
        last_offset=log.last_offset,
        stored_bytes=None if metrics.stored_bytes is None else metrics.stored_bytes(),
        queued_bytes=None if metrics.queued_bytes is None else metrics.queued_bytes(),
        holds=holds,
        hold_lag_messages=behind,
    )


def _streams(metrics: ServerMetrics) -> StreamPart:
    streams = metrics.broker.streams
    seen = streams.counters
    return StreamPart(len(streams), streams.buffers.messages, seen.senders_waiting, seen.receivers_waiting)


def in_ms(seconds: float) -> float:
    """Milliseconds, rounded to a microsecond."""
    return round(seconds * 1000, 3)
