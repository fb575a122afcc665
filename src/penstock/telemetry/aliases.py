"""The same figures under the names that two other systems have for them, for dashboards that know those.

Only what means the same here is told. What has no meaning on this server is not told as nought: it is absent,
and `docs/reference/metrics.md` says why. Labels that this server has no values for are left out.
"""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from penstock.telemetry.families import counter, counters, gauge, gauges, histogram, of_one
from penstock.telemetry.labels import DELIVERED, PUBLISHED
from penstock.telemetry.reading import Reading


def nexusd_families(reading: Reading) -> Iterator[Metric]:
    """The names of NexusD."""
    yield from _nexusd_messages(reading)
    yield from _nexusd_contents(reading)
    yield from _nexusd_process(reading)


def _nexusd_messages(reading: Reading) -> Iterator[Metric]:
    latency = reading.figures.broker.tallies.latency
    delivered = (((*topic, "local"), number) for topic, number in reading.by_topic(DELIVERED))
    dropped = (((reason, policy, topic), number) for (topic, reason, policy), number in reading.dropped())
    yield counters(
        "nexusd_messages_published",
        "See penstock_messages_published.",
        ["topic"],
        reading.by_topic(PUBLISHED),
    )
    yield counters(
        "nexusd_messages_delivered", "See penstock_messages_delivered.", ["topic", "delivery_type"], delivered
    )
    yield counters(
        "nexusd_messages_dropped", "See penstock_messages_dropped.", ["reason", "policy", "topic"], dropped
    )
    yield counters("nexusd_messages_expired", "See penstock_messages_expired.", ["topic"], reading.expired())
    yield histogram("nexusd_message_latency_seconds", "See penstock_delivery_latency_seconds.", latency)
    yield histogram(
        "nexusd_publish_block_duration_seconds",
        "See penstock_publisher_hold_seconds.",
        reading.figures.broker.keeping.holding.waits,
    )
    yield histogram("nexusd_fanout_duration_seconds", "See penstock_delivery_latency_seconds.", latency)


def _nexusd_contents(reading: Reading) -> Iterator[Metric]:
    figures = reading.figures
    broker = figures.broker
    yield gauge("nexusd_active_subscriptions", "See penstock_subscriptions.", figures.subscriptions)
    yield gauge("nexusd_active_topics", "See penstock_topics.", len(broker.topics))
    yield gauge(
        "nexusd_subscriber_queue_capacity", "See penstock_outbox_limit_messages.", figures.outbox_limit
    )
    yield gauge("nexusd_retained_messages", "See penstock_retained_messages.", broker.retained.of_clients)
    rings = {str(number): each for number, each in enumerate(reading.rings)}
    yield gauges(
        "nexusd_buffer_memory_bytes",
        "See penstock_ring_bytes.",
        ["partition"],
        of_one({number: each.bytes for number, each in rings.items()}),
    )
    yield counters(
        "nexusd_buffer_evictions",
        "See penstock_ring_evictions.",
        ["partition"],
        of_one({number: each.evictions for number, each in rings.items()}),
    )
    yield gauges(
        "nexusd_buffer_topics_total",
        "See penstock_rings.",
        ["partition"],
        of_one({number: each.rings for number, each in rings.items()}),
    )


def _nexusd_process(reading: Reading) -> Iterator[Metric]:
    figures, process = reading.figures, reading.process
    yield gauge("nexusd_uptime_seconds", "See penstock_uptime_seconds.", figures.uptime_s)
    yield counter("nexusd_process_cpu_seconds", "See process_cpu_seconds.", process.cpu_s)
    yield gauge("nexusd_process_start_time_seconds", "See process_start_time_seconds.", figures.started_at)
    if process.open_files is not None:
        yield gauge("nexusd_process_open_fds", "See process_open_fds.", process.open_files)
    if process.resident_bytes is not None:
        yield gauge(
            "nexusd_process_resident_memory_bytes",
            "See process_resident_memory_bytes.",
            process.resident_bytes,
        )


def mqtt_families(reading: Reading) -> Iterator[Metric]:
    """The names of the Absmach MQTT broker; its dots are underscores here."""
    figures = reading.figures
    broker, seen = figures.broker, figures.broker.counters
    malformed = seen.malformed_packets
    yield counter("mqtt_connections", "See penstock_connects.", seen.connections)
    yield counter("mqtt_disconnections", "See penstock_disconnects.", seen.disconnections)
    yield counter(
        "mqtt_messages_received",
        "Messages of clients, accepted or not.",
        seen.published + seen.publishes_refused,
    )
    yield counter("mqtt_messages_sent", "See penstock_messages_delivered.", seen.delivered)
    yield counter("mqtt_bytes_received", "See penstock_received_bytes.", seen.bytes_received)
    yield counter("mqtt_bytes_sent", "See penstock_sent_bytes.", seen.bytes_sent)
    yield counters(
        "mqtt_errors",
        "What clients did wrong.",
        ["type"],
        of_one(
            {
                "protocol": seen.wire_errors - malformed,
                "packet": malformed,
                "auth": seen.authentications_failed,
                "authz": seen.actions_forbidden,
            }
        ),
    )
    yield gauge("mqtt_connections_current", "Sessions that are connected.", figures.connected)
    yield gauge("mqtt_subscriptions_active", "See penstock_subscriptions.", figures.subscriptions)
    yield gauge("mqtt_retained_messages", "See penstock_retained_messages.", broker.retained.of_clients)
    yield gauge("mqtt_retained_messages_total", "See penstock_retained_messages.", broker.retained.of_clients)
    yield gauge("mqtt_sessions_active", "See penstock_sessions.", len(broker.sessions))
    yield histogram(
        "mqtt_delivery_duration_ms",
        "See penstock_delivery_latency_seconds, in milliseconds.",
        broker.tallies.latency,
        1000.0,
    )
