"""Values that cross rooms, beside runs: doors, policies, reasons, properties and wills.

`Properties` and `Will` are stored as they are: a change of their fields is a change of the log's format.
"""

from enum import StrEnum

from msgspec import Struct


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


class Will(Struct, frozen=True):
    """Message that is published when a connection ends without a goodbye."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties | None = None
    ttl: float = 0.0
    """Lifetime in seconds; 0 if it does not expire."""
    delay: float = 0.0
