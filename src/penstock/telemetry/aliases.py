"""Metrics under the names of two other systems, for existing dashboards.

Only metrics with the same meaning are exported. One without meaning on this server is absent instead of 0;
`docs/reference/metrics.md` has the reasons. Labels without values on this server are omitted.
"""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from penstock.telemetry.families import Snapshot, counter, counters, gauge, gauges, histogram, label_rows
from penstock.telemetry.labels import DELIVERED, PUBLISHED


def nexusd_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Metrics under NexusD's names."""
    yield from _nexusd_messages(snapshot)
    yield from _nexusd_contents(snapshot)
    yield from _nexusd_process(snapshot)


def _nexusd_messages(snapshot: Snapshot) -> Iterator[Metric]:
    latency = snapshot.metrics.broker.topic_stats.latency
    delivered = (((*topic, "local"), number) for topic, number in snapshot.by_topic(DELIVERED))
    dropped = (((reason, policy, topic), number) for (topic, reason, policy), number in snapshot.dropped())
    yield counters(
        "nexusd_messages_published",
        "See penstock_messages_published.",
        ["topic"],
        snapshot.by_topic(PUBLISHED),
    )
    yield counters(
        "nexusd_messages_delivered", "See penstock_messages_delivered.", ["topic", "delivery_type"], delivered
    )
    yield counters(
        "nexusd_messages_dropped", "See penstock_messages_dropped.", ["reason", "policy", "topic"], dropped
    )
    yield counters("nexusd_messages_expired", "See penstock_messages_expired.", ["topic"], snapshot.expired())
    yield histogram("nexusd_message_latency_seconds", "See penstock_delivery_latency_seconds.", latency)
    yield histogram(
        "nexusd_publish_block_duration_seconds",
        "See penstock_publisher_hold_seconds.",
        snapshot.metrics.broker.backpressure.waits,
    )
    yield histogram("nexusd_fanout_duration_seconds", "See penstock_delivery_latency_seconds.", latency)


def _nexusd_contents(snapshot: Snapshot) -> Iterator[Metric]:
    metrics = snapshot.metrics
    broker = metrics.broker
    yield gauge("nexusd_active_subscriptions", "See penstock_subscriptions.", metrics.subscriptions)
    yield gauge("nexusd_active_topics", "See penstock_topics.", len(broker.topics))
    yield gauge(
        "nexusd_subscriber_queue_capacity", "See penstock_outbox_limit_messages.", metrics.outbox_limit
    )
    yield gauge("nexusd_retained_messages", "See penstock_retained_messages.", broker.retained.of_clients)
    rings = {str(number): each for number, each in enumerate(snapshot.rings)}
    yield gauges(
        "nexusd_buffer_memory_bytes",
        "See penstock_ring_bytes.",
        ["partition"],
        label_rows({number: each.bytes for number, each in rings.items()}),
    )
    yield counters(
        "nexusd_buffer_evictions",
        "See penstock_ring_evictions.",
        ["partition"],
        label_rows({number: each.evictions for number, each in rings.items()}),
    )
    yield gauges(
        "nexusd_buffer_topics_total",
        "See penstock_rings.",
        ["partition"],
        label_rows({number: each.rings for number, each in rings.items()}),
    )


def _nexusd_process(snapshot: Snapshot) -> Iterator[Metric]:
    metrics, process = snapshot.metrics, snapshot.process
    yield gauge("nexusd_uptime_seconds", "See penstock_uptime_seconds.", metrics.uptime_s)
    yield counter("nexusd_process_cpu_seconds", "See process_cpu_seconds.", process.cpu_s)
    yield gauge("nexusd_process_start_time_seconds", "See process_start_time_seconds.", metrics.started_at)
    if process.open_files is not None:
        yield gauge("nexusd_process_open_fds", "See process_open_fds.", process.open_files)
    if process.resident_bytes is not None:
        yield gauge(
            "nexusd_process_resident_memory_bytes",
            "See process_resident_memory_bytes.",
            process.resident_bytes,
        )


def mqtt_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Metrics under the names of the Absmach MQTT broker, with underscores instead of dots."""
    metrics = snapshot.metrics
    broker, seen = metrics.broker, metrics.broker.counters
    malformed = seen.malformed_packets
    yield counter("mqtt_connections", "See penstock_connects.", seen.connections)
    yield counter("mqtt_disconnections", "See penstock_disconnects.", seen.disconnections)
    yield counter(
        "mqtt_messages_received",
        "Messages of clients, accepted or refused.",
        seen.published + seen.publishes_refused,
    )
    yield counter("mqtt_messages_sent", "See penstock_messages_delivered.", seen.delivered)
    yield counter("mqtt_bytes_received", "See penstock_received_bytes.", seen.bytes_received)
    yield counter("mqtt_bytes_sent", "See penstock_sent_bytes.", seen.bytes_sent)
    yield counters(
        "mqtt_errors",
        "Client errors by type.",
        ["type"],
        label_rows(
            {
                "protocol": seen.wire_errors - malformed,
                "packet": malformed,
                "auth": seen.authentications_failed,
                "authz": seen.actions_forbidden,
            }
        ),
    )
    yield gauge("mqtt_connections_current", "Connected sessions.", metrics.connected)
    yield gauge("mqtt_subscriptions_active", "See penstock_subscriptions.", metrics.subscriptions)
    yield gauge("mqtt_retained_messages", "See penstock_retained_messages.", broker.retained.of_clients)
    yield gauge("mqtt_retained_messages_total", "See penstock_retained_messages.", broker.retained.of_clients)
    yield gauge("mqtt_sessions_active", "See penstock_sessions.", len(broker.sessions))
    yield histogram(
        "mqtt_delivery_duration_ms",
        "See penstock_delivery_latency_seconds, in milliseconds.",
        broker.topic_stats.latency,
        1000.0,
    )
