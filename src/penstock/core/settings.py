"""Core's own settings: every buffer, queue and count has a limit here.

`penstock.config` fills these from file, environment and flags; core only reads them. The sum of the limits
is the memory ceiling that the reference page documents.
"""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.common.topics import TopicLimits
from penstock.model import Policy

KIB = 1024
MIB = 1024 * KIB

Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]


class RingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last messages of each topic, in memory, in partitions with a quota each."""

    messages: CountOrZero = 100
    """Last messages kept for each topic; 0 keeps none."""
    topic_bytes: CountOrZero = 256 * KIB
    """Most bytes kept for one topic."""
    total_bytes: CountOrZero = 50 * MIB
    """Most bytes kept for all topics together, split evenly among the partitions."""
    partitions: Annotated[int, Meta(ge=1, le=1024)] = 16
    """Parts with a quota of their own, so that a busy topic evicts only its neighbours."""


class OutboxSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Queue of one connected subscriber, and the block timeout."""

    messages: Count = 1_000_000
    """Most messages that wait for one subscriber before its policy decides; those beyond 10,000 need a
    part of `outbox.shared_bytes`.
    """
    bytes: Count = 256 * MIB
    """Most bytes that wait for one subscriber before its policy decides; those beyond 8 MiB need a part
    of `outbox.shared_bytes`.
    """
    shared_bytes: CountOrZero = 64 * MIB
    """Budget of all outboxes together for what exceeds 10,000 messages or 8 MiB in one of them; an outbox
    gets no more of it than is left for the others.
    """
    block_timeout_ms: Milliseconds = 5_000
    """Longest time a publisher is blocked under `block`; then the oldest message is dropped."""
    block_wildcards: bool = False
    """Allow `block` on a filter that starts with a wildcard."""


class SessionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sessions: number, lifetime, and limits of each."""

    max_sessions: Count = 1_000_000
    """Most sessions, connected or not."""
    max_expiry_s: Annotated[float, Meta(ge=0, le=0xFFFFFFFE)] = 7 * 24 * 3600.0
    """Longest an absent session is kept, whatever the client asks for."""
    max_subscriptions: Count = 10_000
    """Most subscriptions of one session."""
    owed_messages: Count = 10_000
    """Most messages in the offline queue of a session."""
    owed_bytes: Count = 8 * MIB
    """Most bytes in the offline queue of a session."""
    takeover_by_other_users: bool = False
    """Let a client that connects with the client id of another user's session end that session. Otherwise
    the client is refused.
    """


class RetainedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics with a retained value."""

    max_messages: Count = 1_000_000
    """Most topics with a retained value; another one is refused."""


class LedgerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of the ledger of non-deliveries; counts are exact regardless."""

    rows: Count = 100_000
    """Rows remembered; when there are more, the oldest go."""


class MessageIdSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deduplication window of message ids."""

    window_s: Seconds = 600.0
    """Time for which a message id is remembered for its topic; 0 disables deduplication."""
    max: CountOrZero = 100_000
    """Most message ids that are remembered; when there are more, the oldest go. 0 remembers none."""


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics that the log captures, and their size in memory mode."""

    capture: tuple[str, ...] = ()
    """Filters of the topics that are kept."""
    memory_bytes: CountOrZero = 64 * MIB
    """Most bytes kept while the log is in memory; 0 keeps none."""
    queued_bytes: Annotated[int, Meta(ge=MIB)] = 64 * MIB
    """Most bytes that wait for a slow disk. Publishers of stored messages are held back from half of it on;
    at the limit their messages are refused.
    """
    retention_s: Seconds = 7 * 24 * 3600.0
    """Retention time of messages on disk; 0 sets no limit."""
    retention_bytes: CountOrZero = 10 * 1024 * MIB
    """Most bytes kept on disk, as stored; the oldest go first, 0 sets no limit."""
    owed_bytes: CountOrZero = 1024 * MIB
    """Most bytes kept beyond retention for offline queues."""
    max_holds: Count = 1_000
    """Most holds, by which readers keep what they have not read yet."""
    max_holds_per_owner: Count = 100
    """Most holds of one user; all anonymous clients count as one user."""
    max_hold_lapse_s: Annotated[float, Meta(ge=1)] = 7 * 24 * 3600.0
    """Longest a hold may last without a sign of life from its owner."""
    max_readers: Count = 32
    """Most concurrent bulk reads of the log; further requests get a retryable error. One user gets at most
    half of them, and the last is reserved for clients that may subscribe to `$SYS/#`.
    """
    read_timeout_s: Annotated[float, Meta(gt=0)] = 300.0
    """Longest pause of a bulk reader before it is cut off; it replaces
    `http.write_timeout_s`.
    """


class StageSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that wait for a commit before they are published, and how long commits are remembered."""

    lapse_s: Annotated[float, Meta(gt=0)] = 3600.0
    """Time that a stage waits for its commit after its last part."""
    max_bytes: Count = 256 * MIB
    """Most bytes of all stages together; they are in memory, and with a data directory also there."""
    max_part_bytes: Count = 64 * MIB
    """Largest body of one part."""
    max_part_rows: Count = 1_000_000
    """Most rows of one part."""
    max_stages: Count = 10_000
    """Most stages at the same time."""
    keys_s: Seconds = 7 * 24 * 3600.0
    """Time for which the key of a commit is remembered, so that a repeated commit does nothing."""
    max_keys: Count = 100_000
    """Most keys that are remembered; when there are more, the oldest go."""


class StreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Streams: buffers, and waits of senders and receivers."""

    default_size: Count = 100
    """Messages that a stream keeps when the send that makes it does not say how many."""
    max_size: Count = 100_000
    """Most messages that a send may ask a stream to keep."""
    stream_bytes: Count = 8 * MIB
    """Most bytes that one stream keeps."""
    total_bytes: Count = 512 * MIB
    """Most bytes that all streams keep together."""
    max_streams: Count = 1_000_000
    """Most streams at the same time."""
    max_waiting: Count = 100_000
    """Most sends and receives that wait at the same time, those at the head of the log included."""
    idle_s: Annotated[float, Meta(gt=0)] = 300.0
    """Time after which an empty stream without waiters is dropped, with its size."""
    abandoned_s: Annotated[float, Meta(gt=0)] = 3600.0
    """Time after which an unused stream drops its messages."""
    default_timeout_s: Seconds = 30.0
    """Default wait of a receive."""
    max_timeout_s: Seconds = 300.0
    """Longest wait of a send or a receive; longer requests wait this long."""


class SlowSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Definition of a slow consumer, and how long the record is kept."""

    after_ms: Milliseconds = 1_000
    """Queueing time after which a connected subscriber is slow; one that loses a message is
    slow at once.
    """
    keep_s: Seconds = 600.0
    """Time for which a slow consumer stays recorded after it caught up or disconnected."""
    max_clients: Count = 1_000
    """Most recorded slow consumers; recovered ones are dropped first."""


class AccessSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Authentication. Without a password file every client is anonymous."""

    password_file: str | None = None
    """File with names and password hashes, as `penstock passwd` writes it."""
    acl_file: str | None = None
    """Access list: rights to publish and subscribe."""
    allow_anonymous: bool | None = None
    """Allow clients without a user name; unset allows it on loopback if there is no password file."""

    @property
    def wants_passwords(self) -> bool:
        """Every client needs a line in the password file."""
        return self.password_file is not None and not self.allow_anonymous


class TopicRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for the topics that match a filter; the first rule that matches and sets a value wins."""

    filter: str
    """The topics this rule is for."""
    batch_size: Count | None = None
    """Messages gathered before delivery: with a data directory only QoS 0, and never for subscribers with
    cursors.
    """
    batch_timeout_ms: Milliseconds | None = None
    """Longest that messages are gathered."""
    ring_messages: CountOrZero | None = None
    """Last messages kept for each of these topics."""
    ring_bytes: CountOrZero | None = None
    """Most bytes kept for each of these topics."""
    ttl_ms: Milliseconds | None = None
    """Lifetime of messages that bring none; 0 means no end."""
    policy: Policy | None = None
    """Policy of a full outbox."""


class CoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of core."""

    topic: TopicLimits = TopicLimits()
    ring: RingSettings = RingSettings()
    outbox: OutboxSettings = OutboxSettings()
    sessions: SessionSettings = SessionSettings()
    retained: RetainedSettings = RetainedSettings()
    ledger: LedgerSettings = LedgerSettings()
    log: LogSettings = LogSettings()
    message_ids: MessageIdSettings = MessageIdSettings()
    stage: StageSettings = StageSettings()
    slow: SlowSettings = SlowSettings()
    streams: StreamSettings = StreamSettings()
    topics: tuple[TopicRule, ...] = ()
    """Rules for the topics that match a filter; the first that sets a value wins."""
    default_ttl_ms: Milliseconds = 0
    """Lifetime of messages that bring none and that no rule covers; 0 means no end."""
    max_payload_bytes: Count = 4 * MIB - 128 * KIB
    """Largest payload that is taken at any door but MQTT, which has a setting of its own. With topic and
    properties it fits the 4 MiB of gRPC clients."""
    reaper_interval_ms: Count = 1_000
    """Interval of the search for expired messages."""
