"""Responses of the HTTP API as values: metrics and slow subscribers.

Fields that a server does not report are zero or empty.
"""

from msgspec import Struct, convert, field

REASONS = {
    "outbox-full": "outbox full",
    "owed-full": "offline queue full",
    "block-timeout": "publisher was blocked for the maximum time",
    "disconnected": "connection closed while the message was queued",
    "not-connected": "client offline, message QoS 0",
    "session-ended": "session or subscription ended first",
    "packet-too-large": "larger than the client accepts",
    "refused": "refused by the client",
    "failed": "could not be sent",
    "expired": "message expired",
    "retention": "deleted from the log by retention",
    "damaged": "the log is damaged there",
    "never-stored": "never stored",
    "not-authorized": "the client may not read the topic",
}
"""Reasons for non-delivery, in words."""


class Latency(Struct, frozen=True):
    """Latency of recent messages in milliseconds."""

    avg: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    entries: int | None = None
    """Number of measured messages; 0 if none, None for a single topic."""


class TopicMetrics(Struct, frozen=True, kw_only=True):
    """Metrics of one topic."""

    queue_depth: int = 0
    """Messages in the fullest outbox of its subscribers."""
    queue_max_size: int = 0
    batch_size_avg: float = 0.0
    messages_published: int = 0
    messages_delivered: int = 0
    messages_dropped: int = 0
    messages_expired: int = 0
    subscriber_count: int = 0
    latency_ms: Latency = Latency()
    queue_saturation: float | None = None

    @property
    def saturation(self) -> float:
        """Fill level of the fullest outbox, by messages or by bytes, from 0 to 1."""
        return _share(self.queue_saturation, self.queue_depth, self.queue_max_size)


class Totals(Struct, frozen=True, kw_only=True):
    """Metrics of all topics together."""

    active_topics: int = 0
    active_subscribers: int = 0
    total_published: int = 0
    total_delivered: int = 0
    total_dropped: int = 0
    total_expired: int = 0
    connected_clients: int = 0
    slow_subscribers: int = 0
    retained_messages: int = 0


class Outboxes(Struct, frozen=True, kw_only=True):
    """Messages queued for connected subscribers, and publishers blocked by them."""

    lagging_subscribers: int = 0
    slow_subscribers: int = 0
    messages: int = 0
    bytes: int = 0
    largest_messages: int = 0
    limit_messages: int = 0
    publishers_held: int = 0
    publisher_holds: int = 0
    largest_saturation: float | None = None

    @property
    def saturation(self) -> float:
        """Fill level of the fullest outbox of all, by messages or by bytes, from 0 to 1."""
        return _share(self.largest_saturation, self.largest_messages, self.limit_messages)


class LoopLag(Struct, frozen=True):
    """Delay of the server's event loop in milliseconds."""

    avg: float = 0.0
    p99: float = 0.0


class LogMetrics(Struct, frozen=True, kw_only=True):
    """Metrics of the log."""

    epoch: int = 0


class Metrics(Struct, frozen=True, kw_only=True):
    """Metrics of a server at one moment, as far as they are shown."""

    uptime_seconds: float
    total: Totals = field(name="global")
    topics: dict[str, TopicMetrics] = {}
    topics_left_out: int = 0
    not_delivered: dict[str, int] = {}
    outboxes: Outboxes = Outboxes()
    latency_ms: Latency = Latency()
    loop_lag_ms: LoopLag = LoopLag()
    log: LogMetrics = LogMetrics()
    version: str = ""
    node_id: str = ""


def decode_metrics(response: object) -> Metrics:
    """Decode the response of `GET /metrics`.

    Raises:
        msgspec.ValidationError: the response is not from a Penstock server.
    """
    return convert(response, Metrics)


def _share(reported: float | None, messages: int, limit: int) -> float:
    """Fill level of an outbox as reported; older servers report messages only."""
    if reported is not None:
        return reported
    return min(messages / limit, 1.0) if limit else 0.0


class SlowSubscriber(Struct, frozen=True, kw_only=True):
    """Subscriber that is slow, or was until recently."""

    client_id: str
    door: str = ""
    is_slow: bool = False
    connected: bool = False
    recovered: bool = False
    waiting_messages: int = 0
    waiting_bytes: int = 0
    oldest_age_s: float = 0.0
    dropped: int = 0
    policy: str = ""
    since: str = ""
    last_slow_at: str = ""


def decode_slow(response: object) -> list[SlowSubscriber]:
    """Decode the response of `GET /api/v1/slow`, most queued messages first.

    Raises:
        msgspec.ValidationError: the response is not from a Penstock server.
    """
    rows = convert(response, list[SlowSubscriber])
    return sorted(rows, key=lambda row: (row.is_slow, row.waiting_messages, row.dropped), reverse=True)
