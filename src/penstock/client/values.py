"""What goes in and comes out of a connected client: messages, receipts, what is known of a server.

Nothing of a transport is in here. A message that came is a small view of its run, so that many are cheap.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum

from msgspec import Struct

from penstock.client.answers import Statement

__all__ = [
    "ClientState",
    "Explanation",
    "GapNotice",
    "LedgerRow",
    "Outgoing",
    "Peer",
    "PublishReceipt",
    "PublishRefusal",
    "PublishSummary",
    "PublishedMessage",
    "ReceivedMessage",
    "ReceivedRun",
    "WaitingMessage",
]

_DAWN = datetime(1970, 1, 1, tzinfo=UTC)


class ClientState(Enum):
    """How a client and its server stand to each other."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    """The connection is gone; after a while the client tries again."""
    RECONNECTING = "reconnecting"
    """It is trying now."""
    FAILED = "failed"
    """It tries no more: the server has said no, or it was tried often enough."""


class Outgoing(Struct, frozen=True, kw_only=True):
    """A message to publish."""

    topic: str
    payload: bytes | str
    content_type: str | None = None
    retain: bool = False
    ttl_s: float | None = None
    correlation_id: bytes | str | None = None
    response_topic: str | None = None
    message_id: str | None = None
    """Publishing the same id again within the server's window publishes nothing."""
    properties: tuple[tuple[str, str], ...] = ()


class PublishReceipt(Struct, frozen=True, kw_only=True):
    """What became of a published message."""

    topic: str
    sequence: int
    """0 if the server does not tell."""
    subscribers: int
    dropped: int = 0
    """Subscribers that did not get it, because too much waited for them."""
    blocked: int = 0
    """Subscribers that it had to wait for."""
    is_duplicate: bool = False
    """It had been published before, under the same id."""
    cursor: str | None = None
    """Behind it."""
    message_id: str | None = None


class PublishRefusal(Struct, frozen=True, kw_only=True):
    """Messages that the server did not take."""

    first: int
    """The place of the first of them among those that were to be published, from 0 on."""
    count: int
    topic: str
    code: str
    text: str


class PublishSummary(Struct, frozen=True, kw_only=True):
    """What became of many published messages."""

    accepted: int
    """Those among them that had been published before included."""
    refused: int = 0
    duplicates: int = 0
    refusals: tuple[PublishRefusal, ...] = ()
    """What was refused and why, in order; the first thousand."""
    cursor: str | None = None
    """Behind all of them."""


class ReceivedRun(Struct, frozen=True, gc=False):
    """Messages of one topic that follow one another and are alike but for their payloads."""

    topic: str
    payloads: tuple[bytes, ...]
    sequence: int  # of the first
    epoch: int = 0
    published_at_us: int = 0
    content_type: str | None = None
    correlation_id: bytes | None = None
    response_topic: str | None = None
    message_id: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    is_retained: bool = False
    is_replay: bool = False
    source: str | None = None  # the node that took it, where a server tells

    def messages(self, before: str | None, behind: str | None) -> "Iterator[ReceivedMessage]":
        """Its messages. A cursor stands `behind` the last one; up to that one only that `before` is safe."""
        last = len(self.payloads) - 1
        for index, payload in enumerate(self.payloads):
            cursor = behind if index == last else before
            yield ReceivedMessage(payload, self.sequence + index, cursor, self)


class ReceivedMessage(Struct, frozen=True, gc=False):
    """A message that came."""

    payload: bytes
    sequence: int
    """Its number in its topic."""
    cursor: str | None
    """Everything up to here is behind you when you have dealt with this message, and perhaps more."""
    run: ReceivedRun
    """What it has in common with its neighbours."""

    @property
    def topic(self) -> str:
        """Where it was published."""
        return self.run.topic

    @property
    def text(self) -> str:
        """The payload as text."""
        return self.payload.decode()

    @property
    def epoch(self) -> int:
        """Which life of the server its sequence belongs to."""
        return self.run.epoch

    @property
    def published_at(self) -> datetime:
        """When the server took it."""
        return _DAWN + timedelta(microseconds=self.run.published_at_us)

    @property
    def content_type(self) -> str | None:
        """What the payload is, if its publisher told."""
        return self.run.content_type

    @property
    def correlation_id(self) -> bytes | None:
        """What an answer to it repeats."""
        return self.run.correlation_id

    @property
    def response_topic(self) -> str | None:
        """Where an answer to it is awaited."""
        return self.run.response_topic

    @property
    def message_id(self) -> str | None:
        """The id that its publisher gave it, or its server."""
        return self.run.message_id

    @property
    def properties(self) -> tuple[tuple[str, str], ...]:
        """Names and values that its publisher added."""
        return self.run.properties

    @property
    def is_retained(self) -> bool:
        """Whether it is the last value of its topic from before the subscription."""
        return self.run.is_retained

    @property
    def is_replay(self) -> bool:
        """Whether it is of the past that was asked for."""
        return self.run.is_replay


class GapNotice(Struct, frozen=True, kw_only=True):
    """Messages of a subscription that will not come."""

    filters: tuple[str, ...]
    count: int | None
    """How many; None if nobody knows."""
    reason: str
    """Why: a code, such as `retention`, `epoch-changed` or `slow_consumer`; several are joined by commas."""
    statement: Statement | None = None
    """What the server said of it, message by message where it can."""


class Peer(Struct, frozen=True, kw_only=True):
    """Another node, as the server sees it."""

    node_id: str
    address: str
    cluster_id: str
    status: str
    last_seen: datetime | None = None
    topics: tuple[str, ...] = ()


class PublishedMessage(Struct, frozen=True, kw_only=True):
    """What is known of a message itself."""

    published_at: datetime | None
    client_id: str
    qos: int
    retain: bool
    door: str
    offset: int
    missing: str | None
    """Why it is not there any more."""


class LedgerRow(Struct, frozen=True, kw_only=True):
    """Messages that somebody did not get."""

    topic: str
    client_id: str
    reason: str
    policy: str | None
    setting: str | None
    first: int
    last: int
    count: int
    first_at: datetime | None
    last_at: datetime | None


class WaitingMessage(Struct, frozen=True, kw_only=True):
    """Where a message waits for somebody."""

    client_id: str
    place: str
    ahead: int
    is_connected: bool


class Explanation(Struct, frozen=True, kw_only=True):
    """Why somebody got a message, or did not."""

    code: str
    text: str
    newest: int
    """The last sequence of the topic."""
    message: PublishedMessage | None = None
    rows: tuple[LedgerRow, ...] = ()
    waiting: tuple[WaitingMessage, ...] = ()
    filters: tuple[str, ...] = ()
    rows_forgotten: int = 0


def time_of(microseconds: int) -> datetime | None:
    """Microseconds since 1970 as a time; 0 stands for none."""
    return _DAWN + timedelta(microseconds=microseconds) if microseconds else None
