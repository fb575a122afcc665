"""Values of all clients: messages, receipts, statements, and reports about a server.

Independent of the transport. Fields that a newer server adds to an HTTP response are ignored.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.client.payloads import JsonPayload
from penstock.wire.json_values import payload_of

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ClientState(Enum):
    """Connection state of a gRPC client."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    """The connection is lost; the client retries after a delay."""
    RECONNECTING = "reconnecting"
    """An attempt is in progress."""
    FAILED = "failed"
    """No more attempts: the server refused the client, or the attempts are used up."""


# Messages to publish, and their receipts


class Outgoing(Struct, frozen=True, kw_only=True):
    """Message to publish over gRPC."""

    topic: str
    payload: bytes | str
    content_type: str | None = None
    retain: bool = False
    ttl_s: float | None = None
    correlation_id: bytes | str | None = None
    response_topic: str | None = None
    message_id: str | None = None
    """Idempotency key: the same id again within the server's window publishes nothing."""
    properties: tuple[tuple[str, str], ...] = ()


class NewMessage(Struct, kw_only=True, omit_defaults=True):
    """Message to publish over HTTP: a topic, and either `data` (any JSON value) or `payload`."""

    topic: str
    data: Any = UNSET
    payload: str | UnsetType = UNSET
    qos: int = 1
    retain: bool = False
    ttl_ms: int | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    response_topic: str | None = None
    message_id: str | None = None
    """Idempotency key: the same id again within the server's window returns the first receipt."""
    properties: dict[str, str | list[str]] | None = None


class PublishReceipt(Struct, frozen=True, kw_only=True):
    """Receipt of a message published over gRPC."""

    topic: str
    sequence: int
    """0 if the server does not report it."""
    subscribers: int
    dropped: int = 0
    """Subscribers whose full queue dropped it."""
    blocked: int = 0
    """Subscribers whose full queue delayed it."""
    is_duplicate: bool = False
    """A message with the same id had been published before."""
    cursor: str | None = None
    """Position after the message."""
    message_id: str | None = None


class Receipt(Struct, frozen=True, kw_only=True):
    """Receipt of a message published over HTTP."""

    topic: str
    sequence: int
    epoch: int
    cursor: str
    subscribers: int
    stored: bool
    """The message is in a log on disk."""
    message_id: str | None = None
    duplicate: bool = False
    """The message had been published before; this is its first receipt."""


class PublishRefusal(Struct, frozen=True, kw_only=True):
    """Messages refused by the server."""

    first: int
    """Index of the first of them among the published messages, from 0."""
    count: int
    topic: str
    code: str
    text: str


class PublishSummary(Struct, frozen=True, kw_only=True):
    """Result of publishing many messages."""

    accepted: int
    """Duplicates included."""
    refused: int = 0
    duplicates: int = 0
    refusals: tuple[PublishRefusal, ...] = ()
    """The first thousand refusals, in order."""
    cursor: str | None = None
    """Position after all of them."""


# Received messages


class ReceivedRun(Struct, frozen=True, gc=False):
    """Consecutive messages of one topic that differ only in their payloads."""

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
    source: str | None = None  # the node that accepted it, if the server reports that

    def messages(self, before: str | None, behind: str | None) -> "Iterator[ReceivedMessage]":
        """Its messages. The last one carries the cursor `behind`, all others the safe one `before`."""
        last = len(self.payloads) - 1
        for index, payload in enumerate(self.payloads):
            cursor = behind if index == last else before
            yield ReceivedMessage(payload, self.sequence + index, cursor, self)


class ReceivedMessage(JsonPayload, Struct, frozen=True, gc=False):
    """Message received over gRPC: a view of its run, so that many messages stay cheap."""

    payload: bytes
    sequence: int
    """Number in its topic."""
    cursor: str | None
    """Position to resume from after this message; it may be earlier, never later."""
    run: ReceivedRun
    """The fields it shares with its neighbours."""

    @property
    def topic(self) -> str:
        """Topic it was published to."""
        return self.run.topic

    @property
    def text(self) -> str:
        """Payload as text."""
        return self.payload.decode()

    @property
    def epoch(self) -> int:
        """Epoch of the server that its sequence belongs to."""
        return self.run.epoch

    @property
    def published_at(self) -> datetime:
        """Time at which the server accepted it."""
        return _UNIX_EPOCH + timedelta(microseconds=self.run.published_at_us)

    @property
    def content_type(self) -> str | None:
        """Content type, if its publisher gave one."""
        return self.run.content_type

    @property
    def correlation_id(self) -> bytes | None:
        """Correlation data that a response repeats."""
        return self.run.correlation_id

    @property
    def response_topic(self) -> str | None:
        """Topic that a response is expected on."""
        return self.run.response_topic

    @property
    def message_id(self) -> str | None:
        """Id given by its publisher or its server."""
        return self.run.message_id

    @property
    def properties(self) -> tuple[tuple[str, str], ...]:
        """User properties, names and values."""
        return self.run.properties

    @property
    def is_retained(self) -> bool:
        """Return whether it is a retained value from before the subscription."""
        return self.run.is_retained

    @property
    def is_replay(self) -> bool:
        """Return whether it comes from the requested replay."""
        return self.run.is_replay


class Message(JsonPayload, Struct, frozen=True, kw_only=True):
    """Stored or retained message, as the HTTP API returns it."""

    topic: str
    sequence: int
    epoch: int
    cursor: str
    published_at: datetime
    qos: int
    retain: bool
    door: str
    client_id: str
    value: Raw = msgspec.field(name="data")
    encoding: str | None = None
    """`text` if the payload is text that is not JSON."""
    content_type: str | None = None
    correlation_id: Any = None
    response_topic: str | None = None
    message_id: str | None = None
    expires_at: datetime | None = None
    properties: dict[str, str | list[str]] = {}

    @property
    def payload(self) -> bytes:
        """Payload as bytes."""
        return payload_of(self.value, self.encoding)

    @property
    def data(self) -> Any:
        """Payload as a JSON value.

        Raises:
            msgspec.DecodeError: the payload is not JSON.
        """
        return msgspec.json.decode(self.payload)


# Statements about a replay


class Missing(Struct, frozen=True):
    """Requested messages of a topic that are no longer available."""

    topic: str
    first: int | None
    last: int
    reason: str


class Gap(Struct, frozen=True):
    """Offsets missing from the log."""

    first: int
    last: int
    reason: str


class Statement(Struct, frozen=True, kw_only=True):
    """End of a read: messages served, what is missing and why, and the cursor to resume from."""

    after: str | None = None
    next: str
    served: int
    is_complete: bool
    is_at_head: bool
    missing: tuple[Missing, ...] = ()
    gaps: tuple[Gap, ...] = ()


class History(Struct, frozen=True):
    """Messages of a topic, and the statement about them."""

    messages: tuple[Message, ...]
    statement: Statement


class GapNotice(Struct, frozen=True, kw_only=True):
    """Messages of a subscription that will not be delivered."""

    filters: tuple[str, ...]
    count: int | None
    """Number of messages; None if it is unknown."""
    reason: str
    """Code such as `retention`, `epoch-changed` or `slow_consumer`; several are joined by commas."""
    statement: Statement | None = None
    """The server's statement, if the gap is part of a replay."""


# The log


class LogPosition(Struct, frozen=True, kw_only=True):
    """Position in the log."""

    cursor: str
    offset: int
    epoch: int
    log_id: str
    time: datetime | None = None
    lag_rows: int | None = None
    """Upper limit of the rows between the given cursor and this position."""


class LogRange(Struct, frozen=True, kw_only=True):
    """Part of the log, to be read with `read_log(after=..., until=...)`."""

    after: str
    until: str
    rows: int
    """Upper limit of its rows."""
    bytes: int
    """Approximate size as stored."""


class LogRanges(Struct, frozen=True, kw_only=True):
    """Adjacent ranges that together cover a part of the log."""

    after: str
    until: str
    rows: int
    """Upper limit of the rows of all ranges."""
    ranges: list[LogRange]
    gaps: list[Gap] = []
    """Gaps known without reading; a read may find more."""


class Hold(Struct, frozen=True, kw_only=True):
    """Retention hold: everything after its cursor stays in the log."""

    name: str
    owner: str
    cursor: str
    offset: int
    lapse_s: float
    """Lifetime after each renewal."""
    lapses_at: datetime
    filters: tuple[str, ...] = ()
    """Filters its owner reads; none means everything."""


class StagedPart(Struct, frozen=True, kw_only=True):
    """Rows waiting for the commit of their stage."""

    id: str
    part: int
    rows: int
    lapses_at: datetime | None = None


class StageCommit(Struct, frozen=True, kw_only=True):
    """Stages published exactly once."""

    key: str
    rows: int
    first: str | None = None
    last: str | None = None
    duplicate: bool = False
    """The key had been used before; nothing was published again."""


# Reports about a server


class Peer(Struct, frozen=True, kw_only=True):
    """Another node, as the server sees it."""

    node_id: str
    address: str
    cluster_id: str
    status: str
    last_seen: datetime | None = None
    topics: tuple[str, ...] = ()


class PublishedMessage(Struct, frozen=True, kw_only=True):
    """Record of one published message."""

    published_at: datetime | None
    client_id: str
    qos: int
    retain: bool
    door: str
    offset: int
    missing: str | None
    """Reason why it is no longer available."""


class LedgerRow(Struct, frozen=True, kw_only=True):
    """Messages that were not delivered to a client."""

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
    """Queue position of a message that waits for a client."""

    client_id: str
    place: str
    ahead: int
    is_connected: bool


class Explanation(Struct, frozen=True, kw_only=True):
    """Reason why a message was delivered to a client or not."""

    code: str
    text: str
    newest: int
    """Last sequence of the topic."""
    message: PublishedMessage | None = None
    rows: tuple[LedgerRow, ...] = ()
    waiting: tuple[WaitingMessage, ...] = ()
    filters: tuple[str, ...] = ()
    rows_forgotten: int = 0


def datetime_from_us(microseconds: int) -> datetime | None:
    """Microseconds since 1970 as a time; None for 0."""
    return _UNIX_EPOCH + timedelta(microseconds=microseconds) if microseconds else None
