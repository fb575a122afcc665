"""The answer of `GET /metrics` as values. What a server does not tell is zero or empty here."""

from msgspec import Struct, convert, field


class Latency(Struct, frozen=True):
    """How long the last messages took, in milliseconds."""

    avg: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    entries: int | None = None
    """How many were timed; a server that was timing nothing says 0, and one topic does not tell."""


class TopicFigures(Struct, frozen=True, kw_only=True):
    """One topic."""

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
        """How full the fullest outbox is, by messages or by bytes, from 0 to 1."""
        return _share(self.queue_saturation, self.queue_depth, self.queue_max_size)


class Totals(Struct, frozen=True, kw_only=True):
    """All topics together."""

    active_topics: int = 0
    active_subscribers: int = 0
    total_published: int = 0
    total_delivered: int = 0
    total_dropped: int = 0
    total_expired: int = 0
    connected_clients: int = 0
    slow_subscribers: int = 0
    retained_messages: int = 0


class DoorFigures(Struct, frozen=True):
    """Messages that came in and went out at one door."""

    published: int = 0
    delivered: int = 0


class Outboxes(Struct, frozen=True, kw_only=True):
    """What waits for those who are connected and lag behind, and who waits for them."""

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
        """How full the fullest of all is, by messages or by bytes, from 0 to 1."""
        return _share(self.largest_saturation, self.largest_messages, self.limit_messages)


class LoopLag(Struct, frozen=True):
    """How late the server's event loop is, in milliseconds."""

    avg: float = 0.0
    p99: float = 0.0


class Process(Struct, frozen=True, kw_only=True):
    """What the server's process uses, as far as its operating system tells."""

    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    open_files: int | None = None


class Rings(Struct, frozen=True, kw_only=True):
    """The recent messages of all topics."""

    topics: int = 0
    bytes: int = 0
    limit_bytes: int = 0
    evictions: int = 0


class LogFigures(Struct, frozen=True, kw_only=True):
    """The log."""

    durable: bool = False
    failing: bool = False
    epoch: int = 0
    first_offset: int = 0
    last_offset: int = 0
    stored_bytes: int | None = None
    holds: int = 0
    hold_lag_messages: int = 0


class Figures(Struct, frozen=True, kw_only=True):
    """What a server tells of itself at one moment, as far as it is shown."""

    uptime_seconds: float
    total: Totals = field(name="global")
    topics: dict[str, TopicFigures] = {}
    topics_left_out: int = 0
    doors: dict[str, DoorFigures] = {}
    connections: dict[str, int] = {}
    not_delivered: dict[str, int] = {}
    outboxes: Outboxes = Outboxes()
    latency_ms: Latency = Latency()
    loop_lag_ms: LoopLag = LoopLag()
    process: Process = Process()
    rings: Rings = Rings()
    log: LogFigures = LogFigures()
    version: str = ""
    node_id: str = ""


def read_figures(answer: object) -> Figures:
    """The figures in an answer.

    Raises:
        msgspec.ValidationError: this is no answer of a Penstock server.
    """
    return convert(answer, Figures)


def _share(told: float | None, messages: int, limit: int) -> float:
    """How full an outbox is, as the server tells; one that does not counts messages alone."""
    if told is not None:
        return told
    return min(messages / limit, 1.0) if limit else 0.0
