"""Core's own settings: every buffer, queue and count has a limit here.

`penstock.config` fills these from file, environment and flags; core only reads them. The sum of the limits
is the memory ceiling that the reference page documents.
"""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.model import Policy

KIB = 1024
MIB = 1024 * KIB

Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]


class TopicLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long and how deep a topic or filter may be, and how many topics there may be."""

    max_bytes: Annotated[int, Meta(ge=1, le=65535)] = 4096
    """Longest topic or filter, in bytes of UTF-8."""
    max_levels: Annotated[int, Meta(ge=1, le=65535)] = 128
    """Most levels of a topic or filter, counted between slashes."""
    max_topics: Count = 1_000_000
    """Most topics that are known at the same time."""


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
    """What may wait for one subscriber, and how long a publisher waits under `block`."""

    messages: Count = 10_000
    """Most messages that wait for one subscriber before its policy decides."""
    bytes: Count = 8 * MIB
    """Most bytes that wait for one subscriber before its policy decides."""
    block_timeout_ms: Milliseconds = 5_000
    """Longest a publisher is held back under `block`; after it the oldest message is dropped."""
    block_wildcards: bool = False
    """Whether `block` is allowed on a filter that starts with a wildcard."""


class SessionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many sessions are kept, how long, and what each may ask for."""

    max_sessions: Count = 1_000_000
    """Most sessions, connected or not."""
    max_expiry_s: Annotated[float, Meta(ge=0, le=0xFFFFFFFE)] = 7 * 24 * 3600.0
    """Longest an absent session is kept, whatever the client asks for."""
    max_subscriptions: Count = 10_000
    """Most subscriptions of one session."""
    owed_messages: Count = 10_000
    """Most messages an absent session is owed."""
    owed_bytes: Count = 8 * MIB
    """Most bytes an absent session is owed."""


class RetainedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many topics may have a retained value."""

    max_messages: Count = 1_000_000
    """Most topics with a retained value; another one is refused."""


class LedgerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many rows of non-delivery are remembered; counts are exact whatever this says."""

    rows: Count = 100_000
    """Rows remembered; when there are more, the oldest go."""


class MessageIdSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long it is remembered which message ids were accepted, so that none is published twice."""

    window_s: Seconds = 600.0
    """How long a message id is remembered for its topic; 0 remembers none."""
    max: CountOrZero = 100_000
    """Most message ids that are remembered; when there are more, the oldest go. 0 remembers none."""


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which topics the log keeps, and how much of them in memory mode."""

    capture: tuple[str, ...] = ()
    """Filters of the topics that are kept."""
    memory_bytes: CountOrZero = 64 * MIB
    """Most bytes kept while the log is in memory; 0 keeps none."""
    retention_s: Seconds = 7 * 24 * 3600.0
    """How long messages are kept on disk; 0 sets no limit."""
    retention_bytes: CountOrZero = 10 * 1024 * MIB
    """Most bytes kept on disk, as stored; the oldest go first, 0 sets no limit."""
    owed_bytes: CountOrZero = 1024 * MIB
    """Most bytes kept beyond retention because absent sessions are still owed them."""
    max_holds: Count = 1_000
    """Most holds, by which readers keep what they have not read yet."""
    max_holds_per_owner: Count = 100
    """Most holds of one user; all who are anonymous count as one."""
    max_hold_lapse_s: Annotated[float, Meta(ge=1)] = 7 * 24 * 3600.0
    """Longest a hold may last without a sign of life from its owner."""
    max_readers: Count = 32
    """Most requests at the same time that read the log in bulk; another one is asked to come again. One user
    has half of them at most, and the last is for those who may subscribe to `$SYS/#`."""
    read_timeout_s: Annotated[float, Meta(gt=0)] = 300.0
    """How long whoever reads the log in bulk may take nothing of it before it is cut off; it counts instead
    of `http.write_timeout_s`."""


class StageSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that wait for a commit before they are published, and how long commits are remembered."""

    lapse_s: Annotated[float, Meta(gt=0)] = 3600.0
    """How long a stage waits for its commit after its last part came."""
    max_bytes: Count = 256 * MIB
    """Most bytes of all stages together; they are in memory, and with a data directory also there."""
    max_part_bytes: Count = 64 * MIB
    """Largest body of one part."""
    max_part_rows: Count = 1_000_000
    """Most rows of one part."""
    max_stages: Count = 10_000
    """Most stages at the same time."""
    keys_s: Seconds = 7 * 24 * 3600.0
    """How long the key of a commit is remembered, so that the same commit is not made twice."""
    max_keys: Count = 100_000
    """Most keys that are remembered; when there are more, the oldest go."""


class StreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What streams keep for those who receive, and how long either side may wait."""

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
    """How long an empty stream that nobody waits at is remembered, and with it its size."""
    abandoned_s: Annotated[float, Meta(gt=0)] = 3600.0
    """How long a stream keeps its messages if nobody sends to it, receives from it or waits at it."""
    default_timeout_s: Seconds = 30.0
    """How long a receive waits that does not say how long."""
    max_timeout_s: Seconds = 300.0
    """Longest wait of a send or a receive; who asks for more waits so long."""


class SlowSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is called slow, and how long that is remembered."""

    after_ms: Milliseconds = 1_000
    """How long something has to wait for a connected subscriber until it is slow; one that loses something is
    slow at once."""
    keep_s: Seconds = 600.0
    """How long it is remembered that somebody was slow, after it has caught up or gone."""
    max_clients: Count = 1_000
    """Most of those who are slow or were; when there are more, those who were go first."""


class AccessSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may come in. Without a password file everyone is anonymous."""

    password_file: str | None = None
    """File with names and password hashes, as `penstock passwd` writes it."""
    acl_file: str | None = None
    """File that says who may publish and subscribe to what."""
    allow_anonymous: bool | None = None
    """Whether clients may come without a name; unset allows it on loopback if there is no password file."""

    @property
    def wants_passwords(self) -> bool:
        """Whoever comes has to have a line in the password file."""
        return self.password_file is not None and not self.allow_anonymous


class TopicRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for the topics that match a filter; the first rule that matches and sets a value wins."""

    filter: str
    """The topics this rule is for."""
    batch_size: Count | None = None
    """Messages gathered before they leave: with a data directory at QoS 0, and never for who gets cursors."""
    batch_timeout_ms: Milliseconds | None = None
    """Longest that messages are gathered."""
    ring_messages: CountOrZero | None = None
    """Last messages kept for each of these topics."""
    ring_bytes: CountOrZero | None = None
    """Most bytes kept for each of these topics."""
    ttl_ms: Milliseconds | None = None
    """Lifetime of messages that bring none; 0 means no end."""
    policy: Policy | None = None
    """What happens when a subscriber's outbox is full."""


class CoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything core can be told."""

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
    max_payload_bytes: Count = 4 * MIB
    """Largest payload that is taken at any door but MQTT, which has a setting of its own."""
    reaper_interval_ms: Count = 1_000
    """How often expired messages are looked for and removed."""
