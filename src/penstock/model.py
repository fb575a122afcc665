"""The values that cross rooms.

A run is what a message is while it moves: a slab of bytes as they arrived, with where each payload
lies in it, and the stamps that core gives it once. Everything here is a `msgspec.Struct` because the
hot path builds one object per run and nothing else. `Run` and `Shape` are arrays when encoded, because the
log stores them as they are: a change of their fields is a change of its format.
"""

from enum import StrEnum

from msgspec import Struct

NEVER = 0.0
"""The expiry of what does not expire."""


def is_public(topic: str) -> bool:
    """Return whether `#` matches a topic; topics that begin with `$` have to be named."""
    return not topic.startswith("$")


class Door(StrEnum):
    """Door that a message came in by."""

    MQTT = "mqtt"
    SIDECAR = "sidecar"
    WEB = "web"
    STREAMS = "streams"
    SERVER = "server"


class Policy(StrEnum):
    """Policy of a full outbox."""

    DROP_OLDEST = "drop-oldest"
    DROP_NEWEST = "drop-newest"
    BLOCK = "block"
    DISCONNECT = "disconnect"


class Reason(StrEnum):
    """Why a message was not delivered, or why a replay misses it."""

    OUTBOX_FULL = "outbox-full"
    OFFLINE_QUEUE_FULL = "owed-full"
    BLOCK_TIMEOUT = "block-timeout"
    DISCONNECTED = "disconnected"
    NOT_CONNECTED = "not-connected"
    SESSION_ENDED = "session-ended"
    PACKET_TOO_LARGE = "packet-too-large"
    REFUSED = "refused"
    FAILED = "failed"
    EVICTED = "evicted"
    EXPIRED = "expired"
    RETENTION = "retention"
    NEVER_STORED = "never-stored"
    LOST_UNCOMMITTED = "lost-uncommitted"
    EPOCH_CHANGED = "epoch-changed"
    DAMAGED = "damaged"
    NOT_AUTHORIZED = "not-authorized"


class Properties(Struct, frozen=True, gc=False, omit_defaults=True):
    """Properties of a message that every door forwards."""

    content_type: str | None = None
    correlation_id: bytes | None = None
    response_topic: str | None = None
    payload_format: int | None = None
    message_id: str | None = None
    user: tuple[tuple[str, str], ...] = ()


class Shape(Struct, frozen=True, gc=False, array_like=True):
    """Layout and flags of the bytes of a run. Shapes are few and compared by identity.

    `layout` names the framing of the slab ("" for bare payloads). Runs of one shape may be joined and
    forwarded as they are to subscribers with exactly that layout. A plain shape is not retained and has
    neither lifetime nor properties.
    """

    layout: str
    door: Door
    qos: int
    retain: bool
    is_plain: bool


def bare_shape(door: Door, qos: int, retain: bool) -> Shape:
    """The shape of a run whose slab is the payload and nothing else."""
    return _SHAPES[door, qos, retain]


_SHAPES = {
    (door, qos, retain): Shape("", door, qos, retain, is_plain=False)
    for door in Door
    for qos in range(3)
    for retain in (False, True)
}


class Run(Struct, gc=False, array_like=True):
    """Consecutive publishes of one sender with the same topic and flags.

    The slab holds `count` frames of `stride` bytes; each frame's payload starts at `head`. Core fills
    the stamps; `sequence` and `offset` are those of the first message.
    """

    topic: str
    slab: bytes
    head: int
    stride: int
    count: int
    shape: Shape
    properties: Properties | None = None
    ttl: float = NEVER
    packet_id: int = 0
    # Stamped once by core:
    client_id: str = ""
    sequence: int = 0
    offset: int = 0
    published_at: int = 0
    expires_at: float = NEVER

    def payload(self, index: int = 0) -> bytes:
        """The payload of one message of the run."""
        start = index * self.stride
        return self.slab[start + self.head : start + self.stride]

    @property
    def last_offset(self) -> int:
        """Offset of the last message."""
        return self.offset + self.count - 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last message."""
        return self.sequence + self.count - 1

    def is_expired(self, now: float) -> bool:
        """Return whether the lifetime is over at a time of the monotonic clock."""
        return NEVER < self.expires_at <= now

    def part(self, first: int, count: int) -> "Run":
        """A run of `count` messages of this one, from index `first` on, with the same stamps."""
        if count == self.count:
            return self
        start = first * self.stride
        return Run(
            self.topic,
            self.slab[start : start + count * self.stride],
            self.head,
            self.stride,
            count,
            self.shape,
            self.properties,
            self.ttl,
            self.packet_id,
            self.client_id,
            self.sequence + first,
            self.offset + first,
            self.published_at,
            self.expires_at,
        )


class Will(Struct, frozen=True):
    """Message that is published when a connection ends without a goodbye."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties | None = None
    ttl: float = NEVER
    delay: float = 0.0
