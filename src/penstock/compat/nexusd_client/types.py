"""Types of NexusD's client: values, errors, reconnection policy."""

from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, IntEnum
from random import random

import grpc

from penstock.wire.sidecar.messages import nexusd

RETRIED = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""Statuses worth a retry; with any other the daemon would refuse again."""
MAX_EXPONENT = 62
MAX_MULTIPLIER = 100.0
"""Limits that keep delays finite; `max_delay_ms` applies long before."""


class GapRecoveryMode(IntEnum):
    """Recovery of missed messages when a subscription resumes."""

    NONE = 0
    """None: new messages only."""
    RETAINED_ONLY = 1
    """Retained value of each topic."""
    REPLAY_BUFFER = 2
    """Missed messages, as far as they are available."""


class ReconnectionState(Enum):
    """State of the connection to the daemon."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    RECONNECTING = "reconnecting"
    FAILED = "failed"


@dataclass(frozen=True)
class Message:
    """Received message."""

    message_id: str
    topic: str
    payload: bytes
    content_type: str
    timestamp_ms: int
    source_node_id: str
    correlation_id: str
    is_retained: bool = False
    is_replay: bool = False
    sequence_number: int = 0

    def payload_as_string(self) -> str:
        """Payload as text; invalid UTF-8 becomes replacement characters."""
        return self.payload.decode("utf-8", "replace")


@dataclass(frozen=True)
class PublishResult:
    """Result of a publish."""

    success: bool
    message_id: str
    subscriber_count: int
    error_message: str = ""
    subscribers_dropped: int = 0
    subscribers_blocked: int = 0


@dataclass(frozen=True)
class SubscriptionInfo:
    """Subscription, as the daemon reports it."""

    subscription_id: str
    topics: list[str]
    gap_detected: bool = False
    missed_message_count: int = 0
    """-1 if the number is unknown."""
    replay_started: bool = False
    last_sequence: int = 0
    """Highest number received so far, of any topic."""
    last_sequence_per_topic: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicInfo:
    """Topic with subscribers."""

    topic: str
    subscriber_count: int
    has_retained: bool = False
    """Not part of the wire protocol; always False."""


@dataclass(frozen=True)
class PeerInfo:
    """Another node of the daemon's mesh."""

    node_id: str
    address: str
    cluster_id: str
    is_healthy: bool
    status: str = ""
    last_seen_ms: int = 0
    topics: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ReconnectionPolicy:
    """Exponential backoff from `initial_delay_ms` to `max_delay_ms`, with jitter.

    Raises:
        ValueError: a number is negative, or `multiplier` not between 1 and 100.
    """

    max_retries: int = 0
    """Attempts in a row before giving up; 0 for no limit."""
    initial_delay_ms: int = 1000
    max_delay_ms: int = 30000
    exponential_backoff: bool = True
    jitter_factor: float = 0.1
    _: KW_ONLY
    enabled: bool = True
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        numbers = (self.max_retries, self.initial_delay_ms, self.max_delay_ms, self.jitter_factor)
        if min(numbers) < 0 or not 1 <= self.multiplier <= MAX_MULTIPLIER:
            raise ValueError(f"not a valid policy: {self}")

    @property
    def max_attempts(self) -> int:
        """Alias of `max_retries`."""
        return self.max_retries

    @property
    def jitter(self) -> float:
        """Alias of `jitter_factor`."""
        return self.jitter_factor

    def delay_ms(self, attempt: int, chance: float | None = None) -> float:
        """Delay before an attempt; the first is 0. `chance` replaces the random part."""
        power = min(attempt, MAX_EXPONENT) if self.exponential_backoff else 0
        delay = min(self.initial_delay_ms * self.multiplier**power, self.max_delay_ms)
        return delay + self.jitter_factor * delay * (random() if chance is None else chance)  # noqa: S311 - jitter

    def allows(self, attempt: int) -> bool:
        """Return whether an attempt of this number is allowed; the first is 0."""
        return self.enabled and (self.max_retries == 0 or attempt < self.max_retries)


class ReconnectConfig(ReconnectionPolicy):
    """`ReconnectionPolicy` with the argument names of older programs; same defaults."""

    def __init__(
        self,
        enabled: bool = True,
        initial_delay_ms: int = 1000,
        max_delay_ms: int = 30000,
        multiplier: float = 2.0,
        max_attempts: int = 0,
        jitter: float = 0.1,
    ) -> None:
        super().__init__(
            max_attempts, initial_delay_ms, max_delay_ms, True, jitter, enabled=enabled, multiplier=multiplier
        )


class NexusdError(Exception):
    """Base of all errors of the client."""

    def __init__(self, text: str, code: grpc.StatusCode | None = None) -> None:
        super().__init__(text)
        self.code = code
        """Status of the call, if there was one."""


class ConnectionError(NexusdError):  # name imported by existing programs
    """No connection: the client is closed, or the daemon is unreachable."""


class PublishError(NexusdError):
    """A message was not published."""


class SubscribeError(NexusdError):
    """The daemon refused or ended a subscription."""


class UnsubscribeError(NexusdError):
    """A subscription was not ended or paused."""


def message_from_wire(wire: nexusd.Message, *, is_retained: bool, is_replay: bool) -> Message:
    """Decode a message."""
    return Message(
        wire.message_id,
        wire.topic,
        wire.payload,
        wire.content_type,
        wire.timestamp_ms,
        wire.source_node_id,
        wire.correlation_id,
        is_retained,
        is_replay,
        wire.sequence_number,
    )


def publish_result_from_wire(wire: nexusd.PublishResponse) -> PublishResult:
    """Decode the response to a publish."""
    return PublishResult(
        wire.success,
        wire.message_id,
        wire.subscriber_count,
        wire.error_message,
        wire.subscribers_dropped,
        wire.subscribers_blocked,
    )


def topics_from_wire(wire: nexusd.GetTopicsResponse) -> list[TopicInfo]:
    """Decode topics, sorted by name."""
    return [TopicInfo(topic, count) for topic, count in sorted(wire.topics.items())]


def peers_from_wire(wire: nexusd.GetPeersResponse) -> list[PeerInfo]:
    """Decode peers, in the daemon's order."""
    return [
        PeerInfo(
            peer.instance_uuid,
            peer.endpoint,
            peer.cluster_id,
            peer.status == "alive",
            peer.status,
            peer.last_seen_ms,
            list(peer.topics),
        )
        for peer in wire.peers
    ]


def error_from_call(error: grpc.RpcError, kind: type[NexusdError] | None, doing: str) -> NexusdError:
    """The error to raise for a failed call; without `kind` the status decides its type."""
    code = error.code()
    if kind is None:
        kind = ConnectionError if code in RETRIED else NexusdError
    return kind(f"{doing}: {code.name}: {error.details()}", code)
