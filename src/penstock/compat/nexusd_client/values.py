"""What goes in and comes out: the values of NexusD's client, read off the wire."""

from dataclasses import dataclass, field
from enum import Enum, IntEnum

from penstock.wire.sidecar import nexusd


class GapRecoveryMode(IntEnum):
    """What is to come first when a subscription goes on after an interruption."""

    NONE = 0
    """Nothing: only what is published from then on."""
    RETAINED_ONLY = 1
    """The retained value of each topic."""
    REPLAY_BUFFER = 2
    """What was missed, as far as it is still there."""


class ReconnectionState(Enum):
    """How the client and its daemon stand to each other."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    RECONNECTING = "reconnecting"
    FAILED = "failed"


@dataclass(frozen=True)
class Message:
    """A message that came."""

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
        """The payload as text; bytes that are no UTF-8 become replacement characters."""
        return self.payload.decode("utf-8", "replace")


@dataclass(frozen=True)
class PublishResult:
    """What became of a message."""

    success: bool
    message_id: str
    subscriber_count: int
    error_message: str = ""
    subscribers_dropped: int = 0
    subscribers_blocked: int = 0


@dataclass(frozen=True)
class SubscriptionInfo:
    """A subscription as the daemon knows it."""

    subscription_id: str
    topics: list[str]
    gap_detected: bool = False
    missed_message_count: int = 0
    """-1 if nobody knows how many."""
    replay_started: bool = False
    last_sequence: int = 0
    """The highest number that came so far, in any of the topics."""
    last_sequence_per_topic: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicInfo:
    """A topic with subscribers."""

    topic: str
    subscriber_count: int
    has_retained: bool = False
    """Not told by the wire; always False."""


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


def message_of(wire: nexusd.Message, *, is_retained: bool, is_replay: bool) -> Message:
    """A message as programs know it."""
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


def result_of(wire: nexusd.PublishResponse) -> PublishResult:
    """The answer to a publish."""
    return PublishResult(
        wire.success,
        wire.message_id,
        wire.subscriber_count,
        wire.error_message,
        wire.subscribers_dropped,
        wire.subscribers_blocked,
    )


def topics_of(wire: nexusd.GetTopicsResponse) -> list[TopicInfo]:
    """Topics, by name."""
    return [TopicInfo(topic, count) for topic, count in sorted(wire.topics.items())]


def peers_of(wire: nexusd.GetPeersResponse) -> list[PeerInfo]:
    """Peers, as the daemon lists them."""
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
