"""Responses of the HTTP API as values: metrics, slow subscribers, undelivered messages.

Fields that a server does not report are zero or empty.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct, convert, field

from penstock.client import ConnectionRefused

T = TypeVar("T")
SHOWN_RECORDS = 100
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


class DoorMetrics(Struct, frozen=True):
    """Messages published and delivered through one door."""

    published: int = 0
    delivered: int = 0


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


class Process(Struct, frozen=True, kw_only=True):
    """Resources of the server's process, where its operating system reports them."""

    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    open_files: int | None = None


class Rings(Struct, frozen=True, kw_only=True):
    """Recent messages of all topics, in memory."""

    topics: int = 0
    bytes: int = 0
    limit_bytes: int = 0
    evictions: int = 0


class LogMetrics(Struct, frozen=True, kw_only=True):
    """Metrics of the log."""

    durable: bool = False
    failing: bool = False
    epoch: int = 0
    first_offset: int = 0
    last_offset: int = 0
    stored_bytes: int | None = None
    holds: int = 0
    hold_lag_messages: int = 0


class Metrics(Struct, frozen=True, kw_only=True):
    """Metrics of a server at one moment, as far as they are shown."""

    uptime_seconds: float
    total: Totals = field(name="global")
    topics: dict[str, TopicMetrics] = {}
    topics_left_out: int = 0
    doors: dict[str, DoorMetrics] = {}
    connections: dict[str, int] = {}
    not_delivered: dict[str, int] = {}
    outboxes: Outboxes = Outboxes()
    latency_ms: Latency = Latency()
    loop_lag_ms: LoopLag = LoopLag()
    process: Process = Process()
    rings: Rings = Rings()
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


class ApiClient(Protocol):
    """HTTP client, as far as it is needed here."""

    def get(self, path: str, **parameters: Any) -> dict[str, Any]: ...


def decode_response(response: object, kind: type[T]) -> T:
    """Decode a response.

    Raises:
        ConnectionRefused: the response is not from a Penstock server.
    """
    try:
        return msgspec.convert(response, kind)
    except msgspec.ValidationError as error:
        raise ConnectionRefused(f"the response is not from a Penstock server: {error}") from None


class Record(Struct, frozen=True, kw_only=True):
    """Range of messages that one client did not get, for one reason."""

    client_id: str
    reason: str
    first: int
    last: int
    count: int
    first_at: datetime
    last_at: datetime
    topic: str = ""
    policy: str | None = None
    setting: str = ""
    counts_offsets: bool = False
    """`first` and `last` are offsets, because nothing else is known of these messages."""

    @property
    def sequences(self) -> str:
        """Range of sequences, as text."""
        kind = "offset" if self.counts_offsets else ""
        if self.first == self.last:
            return f"{kind} {self.first:,}".strip()
        return f"{kind + 's' if kind else ''} {self.first:,} to {self.last:,}".strip()

    @property
    def words(self) -> str:
        """Reason in words."""
        return REASONS.get(self.reason, self.reason)


class QueuedMessage(Struct, frozen=True, kw_only=True):
    """Queue in which a message waits for one client."""

    client_id: str
    place: str
    ahead: int
    connected: bool


class PublishedMessage(Struct, frozen=True, kw_only=True):
    """Facts about a message, or why it does not exist any more."""

    published_at: datetime | None = None
    client_id: str | None = None
    qos: int | None = None
    retain: bool | None = None
    door: str | None = None
    missing: str | None = None


class Verdict(Struct, frozen=True, kw_only=True):
    """Result of `why` for one message."""

    topic: str
    sequence: int
    code: str
    text: str
    client_id: str | None = None
    newest: int = 0
    message: PublishedMessage | None = None
    rows: list[Record] = []
    waiting: list[QueuedMessage] = []
    filters: list[str] = []
    rows_forgotten: int = 0
    truncated: bool = False


class RecordPage(Struct, frozen=True, kw_only=True):
    """Page of records, newest first."""

    drops: list[Record]
    next: int | None = None
    total: int = 0
    rows_forgotten: int = 0


def ask_why(client: ApiClient, topic: str, sequence: int, client_id: str | None = None) -> Verdict:
    """Ask why a message was or was not delivered, to one client or to all.

    Raises:
        PenstockError: the server is unreachable or refuses the request.
    """
    response = client.get("/api/v1/why", topic=topic, sequence=sequence, client=client_id or None)
    return decode_response(response, Verdict)


def find_records(
    client: ApiClient,
    *,
    topic: str = "",
    client_id: str = "",
    reason: str = "",
    after: int | None = None,
    limit: int = SHOWN_RECORDS,
) -> RecordPage:
    """Find the newest records of a topic, of a client, for a reason.

    Raises:
        PenstockError: the server is unreachable or refuses the request.
    """
    filters = {"topic": topic.strip(), "client": client_id.strip(), "reason": reason}
    given = {name: value for name, value in filters.items() if value}
    return decode_response(client.get("/api/v1/drops", after=after, limit=limit, **given), RecordPage)


def sums_by_reason(records: Iterable[Record]) -> list[tuple[str, int]]:
    """Number of messages per reason, the most frequent first."""
    sums: Counter[str] = Counter()
    for record in records:
        sums[record.reason] += record.count
    return sums.most_common()
