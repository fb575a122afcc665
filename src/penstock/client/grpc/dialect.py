"""Port between the gRPC client and the services it can use: `penstock.v1` and NexusD's.

A dialect uses one channel after another: `connect` hands it the next one after a loss. A feed is one
subscription; it outlives channels too, and tracks its position. Both raise errors of the catalogue: after
`ConnectionLost`, or another error worth retrying, the channel has to be replaced; any other error is a
refusal. Retries, delays and callbacks are the caller's task.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from penstock.client.messages import Explanation, Peer, ReceivedRun, Statement

if TYPE_CHECKING:
    import grpc.aio


class Entry(Struct, frozen=True):
    """Consecutive messages to one topic that differ only in their payloads."""

    topic: str
    payloads: Sequence[bytes]
    content_type: str = ""
    correlation_id: bytes = b""
    response_topic: str = ""
    retain: bool = False
    ttl_ms: int = 0
    message_ids: Sequence[str] = ()  # none, or one for each payload
    properties: tuple[tuple[str, str], ...] = ()


class Placed(Struct, frozen=True):
    """Result of a published entry."""

    index: int  # of the entry
    sequence: int = 0  # of the first message that is not a duplicate; 0 if the server does not report it
    duplicates: int = 0
    subscribers: int = 0
    dropped: int = 0
    blocked: int = 0
    message_id: str = ""  # assigned by the server, if it reports one


class Refused(Struct, frozen=True):
    """Refused entry; none of its messages was published."""

    index: int
    code: str
    text: str


class Acknowledgement(Struct, frozen=True):
    """Results of all entries of a batch."""

    accepted: int
    placed: Sequence[Placed]
    refused: Sequence[Refused] = ()
    cursor: str | None = None


class Start(Struct, frozen=True):
    """Start of a subscription's filters; by default new messages only."""

    after: str | None = None
    last: int | None = None
    retained: bool = False


class FeedOptions(Struct, frozen=True):
    """Options of a whole subscription."""

    client_id: str = ""
    buffer: int = 1_000
    """Limit of messages that are in flight or wait for the application."""
    policy: str | None = None
    """Slow-consumer policy at the server: `drop-oldest`, `drop-newest`, `block`, `disconnect`."""


class Arrived(Struct, frozen=True):
    """Messages in order, and the dialect's cursor after them."""

    runs: Sequence[ReceivedRun]
    cursor: str | None
    count: int


class Replayed(Struct, frozen=True):
    """End of a replay; the filters are live from here on."""

    filters: tuple[str, ...]
    statement: Statement


class PositionLost(Struct, frozen=True):
    """The server no longer knows the position: an unknown number of messages is missing."""

    filters: tuple[str, ...]
    reason: str


class Dropped(Struct, frozen=True):
    """Messages that the server dropped because the subscriber was too slow."""

    count: int
    reason: str


class Withdrawn(Struct, frozen=True):
    """Filters that the server has removed."""

    filters: tuple[str, ...]
    code: str = "not-authorized"


FeedEvent: TypeAlias = Arrived | Replayed | PositionLost | Dropped | Withdrawn


class Feed(Protocol):
    """One subscription, across channels; used by one task, except for `add` and `remove`.

    Over its lifetime each message is delivered once, or reported as missing: by `Replayed` with an incomplete
    statement, by `PositionLost` or by `Dropped`. At most `FeedOptions.buffer` delivered messages are
    not yet reported to `taken`.
    """

    @property
    def cursor(self) -> str | None:
        """Cursor after everything that `receive` has returned; None as long as it is unknown."""

    @property
    def filters(self) -> tuple[str, ...]:
        """The subscribed filters."""

    async def open(self) -> None:
        """Start, or resume after the last received message, on the dialect's current channel."""

    async def receive(self) -> FeedEvent:
        """The next event. Cancelling this abandons the channel: only `open` or `close` may follow."""

    async def add(self, filters: Sequence[str], start: Start) -> None:
        """Add filters; returns once the server has accepted them.

        Allowed with and without a channel. After a lost channel it keeps waiting: the next `open` sends the
        request again.
        """

    async def remove(self, filters: Sequence[str]) -> None:
        """Remove filters; messages in flight may still be delivered."""

    def taken(self, count: int) -> None:
        """Report messages that the application has processed; they make room for as many more."""

    async def close(self) -> None:
        """End it, also at the server if that is connected. Never raises."""


class Dialect(Protocol):
    """One gRPC service, used over one channel after another."""

    allows_idle_pings: bool
    """Return whether its servers accept keepalive pings on a connection without traffic."""

    async def connect(self, channel: "grpc.aio.Channel") -> None:
        """Use a channel from now on, after checking that the server offers the service and admits the client.

        Raises:
            UnknownService: the server does not offer this service.
        """

    async def publish(self, entries: Sequence[Entry]) -> Acknowledgement:
        """Publish a batch; calls may overlap, and batches keep the order of the calls."""

    def feed(self, options: FeedOptions) -> Feed:
        """A subscription without filters, not yet open."""

    async def topics(self) -> Mapping[str, int]:
        """Topics with subscribers, and the number of subscribers of each."""

    async def peers(self) -> Sequence[Peer]:
        """Other nodes."""

    async def why(self, topic: str, sequence: int, client_id: str | None) -> Explanation:
        """The reason why a message was delivered to a client or not."""

    async def close(self) -> None:
        """Release everything; waiting callers get `ConnectionLost`."""
