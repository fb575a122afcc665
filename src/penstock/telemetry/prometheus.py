"""The figures in Prometheus' text format and in OpenMetrics, through a collector of our own.

Everything is read in one turn of the loop, so that numbers fit one another, and then written family by
family, so that nobody has to wait long. Names follow Prometheus' rules; `docs/reference/metrics.md` has all
of them.
"""

from asyncio import sleep
from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import InfoMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from penstock.core.counters import Counters
from penstock.telemetry.aliases import mqtt_families, nexusd_families
from penstock.telemetry.families import Rows, counter, counters, gauge, gauges, histogram, of_one
from penstock.telemetry.figures import Figures
from penstock.telemetry.labels import DELIVERED, PUBLISHED
from penstock.telemetry.overview import CLIENT_DOORS
from penstock.telemetry.reading import Reading, read
from penstock.telemetry.streams import stream_families

__all__ = ["OPENMETRICS_TYPE", "TEXT_TYPE", "render_openmetrics", "render_text"]

TEXT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
STATUSES = ("2xx", "3xx", "4xx", "5xx")
CALLS = "calls_"
"""What the numbers of gRPC calls begin with, by the name of their status."""
_END = b"# EOF\n"


class OneFamily(Collector):
    """A collector of one family, which is written by itself."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


async def render_text(figures: Figures) -> bytes:
    """Prometheus' text format, version 0.0.4."""
    parts: list[bytes] = []
    for family in list(families(await read(figures))):
        parts.append(generate_latest(OneFamily(family)))
        await sleep(0)
    return b"".join(parts)


async def render_openmetrics(figures: Figures) -> bytes:
    """OpenMetrics, version 1.0.0."""
    parts: list[bytes] = []
    for family in list(families(await read(figures))):
        written: bytes = generate_openmetrics(OneFamily(family))  # type: ignore[no-untyped-call]
        parts.append(written.removesuffix(_END))
        await sleep(0)
    return b"".join(parts) + _END


def families(reading: Reading) -> Iterator[Metric]:
    """Everything there is to tell."""
    yield from _messages(reading)
    yield from _clients(reading)
    yield from _errors(reading)
    yield from _queues(reading)
    yield from stream_families(reading.figures.broker)
    yield from _contents(reading)
    yield from _log(reading)
    yield from _server(reading)
    if reading.figures.settings.nexusd_names:
        yield from nexusd_families(reading)
    if reading.figures.settings.mqtt_names:
        yield from mqtt_families(reading)


def _messages(reading: Reading) -> Iterator[Metric]:
    broker = reading.figures.broker
    yield counters(
        "penstock_messages_published",
        "Messages of clients that were accepted.",
        ["topic"],
        reading.by_topic(PUBLISHED),
    )
    yield counters(
        "penstock_messages_delivered",
        "Messages that were sent, once for each subscriber.",
        ["topic"],
        reading.by_topic(DELIVERED),
    )
    yield counters(
        "penstock_door_messages",
        "Messages of clients by the door they came in at, and once for each subscriber by the door they went "
        "out at; the server's own topics are left out.",
        ["door", "direction"],
        _by_door(broker.counters),
    )
    yield counters(
        "penstock_messages_dropped",
        "Messages that a subscriber lost against its will, once for each subscriber; the policy is empty "
        "where none decides.",
        ["topic", "reason", "policy"],
        reading.dropped(),
    )
    yield counters(
        "penstock_messages_expired",
        "Messages that expired before a subscriber could get them, once for each subscriber.",
        ["topic"],
        reading.expired(),
    )
    yield counters(
        "penstock_messages_not_delivered",
        "Messages that a subscriber did not get, with the former two and everyday reasons such as "
        "not-connected, once for each subscriber.",
        ["reason"],
        of_one({str(reason): count for reason, count in broker.ledger.counts.items()}),
    )
    yield histogram(
        "penstock_delivery_latency_seconds",
        "From the first byte of a chunk read to the last byte of what it brought written, once for each "
        "stretch of messages with the same subscribers.",
        broker.tallies.latency,
    )


def _by_door(seen: Counters) -> Rows:
    for door in CLIENT_DOORS:
        yield (door, PUBLISHED), seen.published_at[door]
        yield (door, DELIVERED), seen.delivered_at[door]


def _clients(reading: Reading) -> Iterator[Metric]:
    figures, seen = reading.figures, reading.figures.broker.counters
    yield gauges(
        "penstock_connections",
        "Connections that are open; web is /ws.",
        ["door"],
        of_one({door.name: len(door.connections) for door in figures.doors}),
    )
    yield counter("penstock_connects", "Sessions that got a connection.", seen.connections)
    yield counter("penstock_disconnects", "Sessions that lost their connection.", seen.disconnections)
    yield counter("penstock_takeovers", "Connections that another one took the session from.", seen.takeovers)
    away = len(figures.broker.sessions) - figures.connected
    yield gauges(
        "penstock_sessions",
        "Sessions that are known; a gRPC stream is one, a paused subscription none.",
        ["state"],
        of_one({"connected": figures.connected, "away": away}),
    )
    yield counter("penstock_sessions_expired", "Sessions that stayed away too long.", seen.sessions_expired)
    yield gauge("penstock_subscriptions", "Subscriptions of all sessions.", figures.subscriptions)
    yield gauge(
        "penstock_paused_subscriptions",
        "Subscriptions of gRPC clients that are paused and can be resumed.",
        len(figures.broker.paused),
    )
    yield counter("penstock_subscriptions_added", "Subscriptions that were made.", seen.subscriptions_added)
    yield counter("penstock_subscriptions_removed", "Subscriptions that ended.", seen.subscriptions_removed)
    yield counter("penstock_received_bytes", "Bytes that were read from clients.", seen.bytes_received)
    yield counter("penstock_sent_bytes", "Bytes that were written to clients.", seen.bytes_sent)
    yield counters(
        "penstock_control_packets",
        "MQTT packets, and calls and events of NexusD's gRPC service, that carry no message.",
        ["direction"],
        of_one({"received": seen.control_packets_received, "sent": seen.control_packets_sent}),
    )
    told = figures.told_by_doors()
    if "requests" in told:
        yield counter("penstock_http_requests", "HTTP requests that were read.", told["requests"])
        answers = {status: told.get(f"responses_{status}", 0) for status in STATUSES}
        yield counters(
            "penstock_http_responses",
            "HTTP answers, by the class of their status.",
            ["status"],
            of_one(answers),
        )
    calls = {name.removeprefix(CALLS): count for name, count in told.items() if name.startswith(CALLS)}
    if calls:
        yield counters(
            "penstock_grpc_calls",
            "gRPC calls that ended, by their status; a stream is one call, and one whose client has gone "
            "is CANCELLED.",
            ["status"],
            of_one(calls),
        )


def _errors(reading: Reading) -> Iterator[Metric]:
    seen = reading.figures.broker.counters
    malformed = seen.malformed_packets
    yield counter(
        "penstock_connections_refused", "Connections that were not let in at all.", seen.connections_refused
    )
    yield counter(
        "penstock_authentications_failed",
        "Clients that could not prove who they are.",
        seen.authentications_failed,
    )
    yield counter(
        "penstock_actions_forbidden",
        "Publishes, subscriptions, wills and gRPC calls that a client has no right to.",
        seen.actions_forbidden,
    )
    yield counter("penstock_publishes_refused", "Messages that were not accepted.", seen.publishes_refused)
    yield counters(
        "penstock_wire_errors",
        "Bytes that break a protocol: packets that cannot be parsed, and packets that may not come.",
        ["kind"],
        of_one({"malformed": malformed, "protocol": seen.wire_errors - malformed}),
    )


def _queues(reading: Reading) -> Iterator[Metric]:
    figures, waiting, slow = reading.figures, reading.waiting, reading.figures.broker.slow
    holding = figures.broker.keeping.holding
    yield gauge(
        "penstock_lagging_subscribers",
        "Connected subscribers for whom something waits at this moment.",
        waiting.subscribers,
    )
    yield gauge("penstock_slow_subscribers", "Those of them who are slow.", slow.count)
    yield counter("penstock_subscribers_slowed", "How often a subscriber became slow.", slow.total)
    yield gauge("penstock_outbox_messages", "Messages in the outboxes of all subscribers.", waiting.messages)
    yield gauge("penstock_outbox_bytes", "Bytes in the outboxes of all subscribers.", waiting.bytes)
    yield gauge("penstock_outbox_largest_messages", "Messages in the outbox that has most.", waiting.largest)
    yield gauge("penstock_outbox_limit_messages", "Messages that fit into an outbox.", figures.outbox_limit)
    yield gauge(
        "penstock_outbox_largest_ratio",
        "How full the fullest outbox is, by messages or by bytes; 1 is full.",
        waiting.saturation,
    )
    yield gauge(
        "penstock_publishers_held",
        "Publishers that wait for a subscriber with the policy block.",
        holding.held,
    )
    yield counter(
        "penstock_publisher_holds", "How often a publisher had to wait for a subscriber.", holding.held_total
    )
    yield histogram(
        "penstock_publisher_hold_seconds", "How long a publisher had to wait for a subscriber.", holding.waits
    )
    ledger = figures.broker.ledger
    yield gauge("penstock_ledger_rows", "Records of what was not delivered.", ledger.rows_known)
    yield counter(
        "penstock_ledger_rows_forgotten", "Records that made room for others.", ledger.rows_forgotten
    )


def _contents(reading: Reading) -> Iterator[Metric]:
    broker, rings = reading.figures.broker, reading.rings
    yield gauge("penstock_topics", "Topics that are known, the server's own included.", len(broker.topics))
    yield gauge("penstock_filters", "Different filters that somebody subscribes to.", broker.router.filters)
    yield gauge(
        "penstock_retained_messages", "Topics with a retained value of a client.", broker.retained.of_clients
    )
    yield gauge(
        "penstock_rings", "Topics whose last messages are in memory.", sum(each.rings for each in rings)
    )
    yield gauge("penstock_ring_bytes", "Memory that rings have reserved.", sum(each.bytes for each in rings))
    yield gauge(
        "penstock_ring_limit_bytes", "Memory that rings may use.", sum(each.limit_bytes for each in rings)
    )
    yield counter(
        "penstock_ring_evictions", "Rings that made room for others.", sum(each.evictions for each in rings)
    )


def _log(reading: Reading) -> Iterator[Metric]:
    figures, log = reading.figures, reading.figures.broker.log
    yield gauge("penstock_log_epoch", "How often the log was begun.", log.epoch)
    yield gauge("penstock_log_first_offset", "The oldest offset that the log may have.", log.first_offset)
    yield gauge("penstock_log_last_offset", "The last offset that is committed.", log.last_offset)
    if log.is_durable:
        yield gauge(
            "penstock_log_failing",
            "1 while nothing can be stored; only with a data directory.",
            float(log.failure is not None),
        )
    if figures.stored_bytes is not None:
        yield gauge(
            "penstock_log_stored_bytes",
            "What the log takes as stored; only with a data directory.",
            figures.stored_bytes(),
        )
    if figures.archive is not None:
        holds, behind = figures.holds()
        yield gauge(
            "penstock_log_holds",
            "Readers that keep what they have not read; only with a data directory.",
            holds,
        )
        yield gauge(
            "penstock_log_hold_lag_messages",
            "Offsets that the slowest of them has not read yet.",
            behind,
        )


def _server(reading: Reading) -> Iterator[Metric]:
    figures, process = reading.figures, reading.process
    yield InfoMetricFamily(
        "penstock_build",
        "Which server this is; always 1.",
        {"version": figures.version, "node_id": figures.broker.node_id},
    )
    yield gauge("penstock_uptime_seconds", "How long the server runs.", figures.uptime_s)
    if figures.lag is not None:
        yield histogram(
            "penstock_event_loop_lag_seconds",
            "How late the loop was with what was due, looked at twice a second.",
            figures.lag.seconds,
        )
    yield counter("process_cpu_seconds", "Processor time that was used.", process.cpu_s)
    yield gauge(
        "process_start_time_seconds",
        "When the server was started, in seconds since 1970.",
        figures.started_at,
    )
    if process.max_files is not None:
        yield gauge("process_max_fds", "Files that may be open.", process.max_files)
    if process.open_files is not None:
        yield gauge("process_open_fds", "Files that are open; only on Linux.", process.open_files)
    if process.resident_bytes is not None:
        yield gauge("process_resident_memory_bytes", "Memory in use; only on Linux.", process.resident_bytes)
