"""Prometheus text format and OpenMetrics.

All metrics are read in one turn of the event loop, so that they are consistent, and then written family by
family, so that others are not delayed. `docs/reference/metrics.md` lists all names.
"""

from asyncio import sleep
from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import InfoMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from penstock.core.broker import Broker
from penstock.core.diagnostics.counters import Counters
from penstock.telemetry.aliases import mqtt_families, nexusd_families
from penstock.telemetry.families import (
    Rows,
    Snapshot,
    counter,
    counters,
    gauge,
    gauges,
    histogram,
    label_rows,
    take_snapshot,
)
from penstock.telemetry.labels import DELIVERED, PUBLISHED
from penstock.telemetry.metrics import ServerMetrics
from penstock.telemetry.overview import CLIENT_DOORS

__all__ = ["OPENMETRICS_TYPE", "TEXT_TYPE", "render_openmetrics", "render_text"]
TEXT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
STATUSES = ("2xx", "3xx", "4xx", "5xx")
CALLS = "calls_"
"""Prefix of the counters of gRPC calls, followed by their status."""
_END = b"# EOF\n"


class OneFamily(Collector):
    """Collector of one family, which is written separately."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


async def render_text(metrics: ServerMetrics) -> bytes:
    """Prometheus text format, version 0.0.4."""
    parts: list[bytes] = []
    for family in list(families(await take_snapshot(metrics))):
        parts.append(generate_latest(OneFamily(family)))
        await sleep(0)
    return b"".join(parts)


async def render_openmetrics(metrics: ServerMetrics) -> bytes:
    """OpenMetrics, version 1.0.0."""
    parts: list[bytes] = []
    for family in list(families(await take_snapshot(metrics))):
        written: bytes = generate_openmetrics(OneFamily(family))  # type: ignore[no-untyped-call]
        parts.append(written.removesuffix(_END))
        await sleep(0)
    return b"".join(parts) + _END


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """All metric families."""
    yield from _messages(snapshot)
    yield from _clients(snapshot)
    yield from _errors(snapshot)
    yield from _queues(snapshot)
    yield from stream_families(snapshot.metrics.broker)
    yield from _contents(snapshot)
    yield from _log(snapshot)
    yield from _server(snapshot)
    if snapshot.metrics.settings.nexusd_names:
        yield from nexusd_families(snapshot)
    if snapshot.metrics.settings.mqtt_names:
        yield from mqtt_families(snapshot)


def _messages(snapshot: Snapshot) -> Iterator[Metric]:
    broker = snapshot.metrics.broker
    yield counters(
        "penstock_messages_published",
        "Accepted messages of clients.",
        ["topic"],
        snapshot.by_topic(PUBLISHED),
    )
    yield counters(
        "penstock_messages_delivered",
        "Delivered messages, once per subscriber.",
        ["topic"],
        snapshot.by_topic(DELIVERED),
    )
    yield counters(
        "penstock_door_messages",
        "Messages of clients published through a door, and delivered through it once per subscriber; without "
        "the server's own topics.",
        ["door", "direction"],
        _by_door(broker.counters),
    )
    yield counters(
        "penstock_messages_dropped",
        "Messages that a subscriber lost involuntarily, once per subscriber; the policy is empty where none "
        "applies.",
        ["topic", "reason", "policy"],
        snapshot.dropped(),
    )
    yield counters(
        "penstock_messages_expired",
        "Messages that expired before delivery, once per subscriber.",
        ["topic"],
        snapshot.expired(),
    )
    yield counters(
        "penstock_messages_not_delivered",
        "Undelivered messages by reason, once per subscriber: dropped, expired, and normal reasons such as "
        "not-connected.",
        ["reason"],
        label_rows({str(reason): count for reason, count in broker.ledger.counts.items()}),
    )
    yield histogram(
        "penstock_delivery_latency_seconds",
        "Time from the first byte of a chunk read to the last byte of its messages written, once per group "
        "of messages with the same subscribers.",
        broker.topic_stats.latency,
    )


def _by_door(seen: Counters) -> Rows:
    for door in CLIENT_DOORS:
        yield (door, PUBLISHED), seen.published_at[door]
        yield (door, DELIVERED), seen.delivered_at[door]


def _clients(snapshot: Snapshot) -> Iterator[Metric]:
    metrics, seen = snapshot.metrics, snapshot.metrics.broker.counters
    yield gauges(
        "penstock_connections",
        "Open connections; web is /ws.",
        ["door"],
        label_rows({door.name: len(door.connections) for door in metrics.doors}),
    )
    yield counter("penstock_connects", "Sessions that connected.", seen.connections)
    yield counter("penstock_disconnects", "Sessions that disconnected.", seen.disconnections)
    yield counter("penstock_takeovers", "Connections closed by a session takeover.", seen.takeovers)
    offline = len(metrics.broker.sessions) - metrics.connected
    yield gauges(
        "penstock_sessions",
        "Known sessions; a gRPC stream is one, a paused subscription is not.",
        ["state"],
        label_rows({"connected": metrics.connected, "away": offline}),
    )
    yield counter("penstock_sessions_expired", "Expired sessions.", seen.sessions_expired)
    yield gauge("penstock_subscriptions", "Subscriptions of all sessions.", metrics.subscriptions)
    yield gauge(
        "penstock_paused_subscriptions",
        "Paused subscriptions of gRPC clients, which can be resumed.",
        len(metrics.broker.paused),
    )
    yield counter("penstock_subscriptions_added", "Added subscriptions.", seen.subscriptions_added)
    yield counter("penstock_subscriptions_removed", "Removed subscriptions.", seen.subscriptions_removed)
    yield counter("penstock_received_bytes", "Bytes read from clients.", seen.bytes_received)
    yield counter("penstock_sent_bytes", "Bytes written to clients.", seen.bytes_sent)
    yield counters(
        "penstock_control_packets",
        "MQTT packets, and calls and events of NexusD's gRPC service, without a message.",
        ["direction"],
        label_rows({"received": seen.control_packets_received, "sent": seen.control_packets_sent}),
    )
    by_doors = metrics.door_metrics()
    if "requests" in by_doors:
        yield counter("penstock_http_requests", "HTTP requests.", by_doors["requests"])
        responses = {status: by_doors.get(f"responses_{status}", 0) for status in STATUSES}
        yield counters(
            "penstock_http_responses",
            "HTTP responses by status class.",
            ["status"],
            label_rows(responses),
        )
    calls = {name.removeprefix(CALLS): count for name, count in by_doors.items() if name.startswith(CALLS)}
    if calls:
        yield counters(
            "penstock_grpc_calls",
            "Finished gRPC calls by status; a stream is one call, and CANCELLED if its client disconnected.",
            ["status"],
            label_rows(calls),
        )


def _errors(snapshot: Snapshot) -> Iterator[Metric]:
    seen = snapshot.metrics.broker.counters
    malformed = seen.malformed_packets
    yield counter("penstock_connections_refused", "Refused connections.", seen.connections_refused)
    yield counter(
        "penstock_authentications_failed",
        "Failed authentications.",
        seen.authentications_failed,
    )
    checks = snapshot.metrics.password_checks
    if checks is not None:
        yield gauge("penstock_password_checks_waiting", "Password checks that wait.", checks.waiting)
        yield counters(
            "penstock_password_checks_refused",
            "Password checks refused: too many waiting, too late, or too many failures of an address.",
            ["reason"],
            label_rows(checks.refused),
        )
    yield counter(
        "penstock_actions_forbidden",
        "Publishes, subscriptions, wills and gRPC calls refused for lack of rights.",
        seen.actions_forbidden,
    )
    yield counter("penstock_publishes_refused", "Refused messages.", seen.publishes_refused)
    yield counters(
        "penstock_wire_errors",
        "Protocol violations: packets that cannot be parsed, and packets that are not allowed.",
        ["kind"],
        label_rows({"malformed": malformed, "protocol": seen.wire_errors - malformed}),
    )


def _queues(snapshot: Snapshot) -> Iterator[Metric]:
    metrics, outboxes, slow = snapshot.metrics, snapshot.outboxes, snapshot.metrics.broker.slow_consumers
    backpressure = metrics.broker.backpressure
    yield gauge(
        "penstock_lagging_subscribers",
        "Connected subscribers with queued messages.",
        outboxes.subscribers,
    )
    yield gauge("penstock_slow_subscribers", "Slow subscribers.", slow.count)
    yield counter("penstock_subscribers_slowed", "Number of times a subscriber became slow.", slow.total)
    yield gauge("penstock_outbox_messages", "Messages in the outboxes of all subscribers.", outboxes.messages)
    yield gauge("penstock_outbox_bytes", "Bytes in the outboxes of all subscribers.", outboxes.bytes)
    yield gauge(
        "penstock_outbox_borrowed_bytes",
        "Bytes of outbox.shared_bytes that outboxes have borrowed for a burst.",
        metrics.broker.borrowed_bytes,
    )
    yield gauge("penstock_outbox_largest_messages", "Messages in the outbox with the most.", outboxes.largest)
    yield gauge("penstock_outbox_limit_messages", "Messages that fit into an outbox.", metrics.outbox_limit)
    yield gauge(
        "penstock_outbox_largest_ratio",
        "Fill level of the fullest outbox, by messages or by bytes; 1 is full.",
        outboxes.saturation,
    )
    yield gauge(
        "penstock_publishers_held",
        "Publishers blocked by a subscriber with the policy block, or by a slow disk.",
        backpressure.blocked,
    )
    yield counter(
        "penstock_publisher_holds", "Number of times a publisher was blocked.", backpressure.blocked_total
    )
    yield histogram("penstock_publisher_hold_seconds", "Time publishers were blocked.", backpressure.waits)
    ledger = metrics.broker.ledger
    yield gauge("penstock_ledger_rows", "Records of undelivered messages.", ledger.rows_known)
    yield counter(
        "penstock_ledger_rows_forgotten", "Evicted records of undelivered messages.", ledger.rows_forgotten
    )


def stream_families(broker: Broker) -> Iterator[Metric]:
    """Metrics of streams."""
    streams = broker.streams
    seen, buffers = streams.counters, streams.buffers
    yield gauge("penstock_streams", "Known streams.", len(streams))
    yield gauge("penstock_stream_messages", "Messages in streams.", buffers.messages)
    yield gauge("penstock_stream_bytes", "Memory of messages in streams.", buffers.bytes)
    yield gauges(
        "penstock_stream_waiting",
        "Pending sends and receives.",
        ["side"],
        label_rows({"send": seen.senders_waiting, "receive": seen.receivers_waiting}),
    )
    yield counter("penstock_stream_sends", "Accepted sends.", seen.sends)
    yield counters(
        "penstock_stream_matches",
        "Received messages, by which side came first.",
        ["first"],
        label_rows({"message": seen.met_message, "receiver": seen.met_receiver}),
    )
    yield counters(
        "penstock_stream_timeouts",
        "Sends and receives that timed out.",
        ["side"],
        label_rows({"send": seen.send_timeouts, "receive": seen.receive_timeouts}),
    )
    yield counter(
        "penstock_stream_given_back",
        "Messages put back to the front because their receiver had disconnected.",
        seen.given_back,
    )
    yield counter(
        "penstock_stream_dropped", "Messages evicted by newer ones of their stream.", buffers.dropped
    )
    yield histogram(
        "penstock_stream_send_wait_seconds",
        "Time until sends were accepted.",
        seen.send_waits,
    )
    yield histogram(
        "penstock_stream_receive_wait_seconds",
        "Time receivers waited for their message.",
        seen.receive_waits,
    )


def _contents(snapshot: Snapshot) -> Iterator[Metric]:
    broker, rings = snapshot.metrics.broker, snapshot.rings
    yield gauge("penstock_topics", "Known topics, including the server's own.", len(broker.topics))
    yield gauge("penstock_filters", "Distinct filters with subscribers.", broker.filter_count)
    yield gauge(
        "penstock_retained_messages",
        "Topics with a retained message of a client.",
        broker.retained.of_clients,
    )
    yield gauge("penstock_rings", "Topics with recent messages in memory.", sum(each.rings for each in rings))
    yield gauge("penstock_ring_bytes", "Memory reserved by rings.", sum(each.bytes for each in rings))
    yield gauge(
        "penstock_ring_limit_bytes", "Memory limit of rings.", sum(each.limit_bytes for each in rings)
    )
    yield counter("penstock_ring_evictions", "Evicted rings.", sum(each.evictions for each in rings))


def _log(snapshot: Snapshot) -> Iterator[Metric]:
    metrics, log = snapshot.metrics, snapshot.metrics.broker.log
    yield gauge("penstock_log_epoch", "Epoch of the log: number of times it was started.", log.epoch)
    yield gauge("penstock_log_first_offset", "Oldest offset that the log may have.", log.first_offset)
    yield gauge("penstock_log_last_offset", "Last committed offset.", log.last_offset)
    if log.is_durable:
        yield gauge(
            "penstock_log_failing",
            "1 while messages cannot be stored; only with a data directory.",
            float(log.failure is not None),
        )
    if metrics.stored_bytes is not None:
        yield gauge(
            "penstock_log_stored_bytes",
            "Size of the stored log; only with a data directory.",
            metrics.stored_bytes(),
        )
    if metrics.queued_bytes is not None:
        yield gauge(
            "penstock_log_queued_bytes",
            "Size in memory of what waits for its commit; only with a data directory.",
            metrics.queued_bytes(),
        )
        yield gauge(
            "penstock_log_behind",
            "1 while publishers wait for the disk; only with a data directory.",
            float(log.is_behind),
        )
    if metrics.archive is not None:
        holds, behind = metrics.holds()
        yield gauge(
            "penstock_log_holds",
            "Retention holds of readers; only with a data directory.",
            holds,
        )
        yield gauge(
            "penstock_log_hold_lag_messages",
            "Offsets that the slowest hold has not read yet.",
            behind,
        )


def _server(snapshot: Snapshot) -> Iterator[Metric]:
    metrics, process = snapshot.metrics, snapshot.process
    yield InfoMetricFamily(
        "penstock_build",
        "Version and node id of the server; always 1.",
        {"version": metrics.version, "node_id": metrics.broker.node_id},
    )
    yield gauge("penstock_uptime_seconds", "Uptime of the server.", metrics.uptime_s)
    if metrics.lag is not None:
        yield histogram(
            "penstock_event_loop_lag_seconds",
            "Lag of the event loop, measured twice a second.",
            metrics.lag.seconds,
        )
    if metrics.stall is not None:
        yield gauge(
            "penstock_loop_stall_seconds",
            "CPU time of the longest turn of the event loop in the last 30 to 60 seconds.",
            metrics.stall.recent_s(),
        )
    yield counter("process_cpu_seconds", "CPU time used.", process.cpu_s)
    yield gauge(
        "process_start_time_seconds",
        "Start time of the server in seconds since 1970.",
        metrics.started_at,
    )
    if process.max_files is not None:
        yield gauge("process_max_fds", "Limit of open files.", process.max_files)
    if process.open_files is not None:
        yield gauge("process_open_fds", "Open files; only on Linux.", process.open_files)
    if process.resident_bytes is not None:
        yield gauge("process_resident_memory_bytes", "Memory in use; only on Linux.", process.resident_bytes)
