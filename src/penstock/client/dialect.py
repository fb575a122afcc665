"""What a client needs of a server, whichever service that server offers.

A dialect speaks over one channel after another: `connect` gives it the next one when the last is gone. A feed
is one subscription; it outlives channels too, and knows where it was. Both raise the errors of the catalogue:
`ConnectionLost` (or another that is worth trying again) means that the channel is gone or the server cannot
now, anything else is a no. Waiting, trying again and telling the application are not done here.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from penstock.client.answers import Statement
from penstock.client.values import Explanation, Peer, ReceivedRun

if TYPE_CHECKING:
    import grpc.aio

__all__ = [
    "Acknowledgement",
    "Arrived",
    "Dialect",
    "Dropped",
    "Entry",
    "Feed",
    "FeedEvent",
    "FeedOptions",
    "Forgotten",
    "Placed",
    "Refused",
    "Replayed",
    "Start",
    "Withdrawn",
]


class Entry(Struct, frozen=True):
    """Messages to one topic, in order, that are alike but for their payloads."""

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
    """Where the messages of one entry stand."""

    index: int  # of the entry
    sequence: int = 0  # of the first that was published now; 0 if the server does not tell
    duplicates: int = 0
    subscribers: int = 0
    dropped: int = 0
    blocked: int = 0
    message_id: str = ""  # that the server gave, if it tells


class Refused(Struct, frozen=True):
    """An entry of which nothing was published."""

    index: int
    code: str
    text: str


class Acknowledgement(Struct, frozen=True):
    """What became of the entries of a batch."""

    accepted: int
    placed: Sequence[Placed]
    refused: Sequence[Refused] = ()
    cursor: str | None = None


class Start(Struct, frozen=True):
    """From where on filters are read; nothing of it stands for "from now on"."""

    after: str | None = None
    last: int | None = None
    retained: bool = False


class FeedOptions(Struct, frozen=True):
    """What holds for a whole subscription."""

    client_id: str = ""
    buffer: int = 1_000
    """Messages that may be on their way or wait for the application."""
    policy: str | None = None
    """What the server does when more wait: `drop-oldest`, `drop-newest`, `block`, `disconnect`."""


class Arrived(Struct, frozen=True):
    """Messages in their order. `cursor` is where to go on behind them, in the dialect's own words."""

    runs: Sequence[ReceivedRun]
    cursor: str | None
    count: int


class Replayed(Struct, frozen=True):
    """The end of a replay; from here on the filters are live."""

    filters: tuple[str, ...]
    statement: Statement


class Forgotten(Struct, frozen=True):
    """The server does not know any more where we were: it is not known how many messages are missing."""

    filters: tuple[str, ...]
    reason: str


class Dropped(Struct, frozen=True):
    """Messages that the server dropped because they were not taken in time."""

    count: int
    reason: str


class Withdrawn(Struct, frozen=True):
    """Filters that the server has taken away."""

    filters: tuple[str, ...]
    code: str = "not-authorized"


FeedEvent: TypeAlias = Arrived | Replayed | Forgotten | Dropped | Withdrawn


class Feed(Protocol):
    """One subscription, over as many channels as it takes; used by one task, but for `add` and `remove`.

    In the life of a feed no message comes twice and none is left out silently, except that an acknowledged
    gap is told by `Replayed` with an incomplete statement, `Forgotten` or `Dropped`. It gives no more than
    `FeedOptions.buffer` messages that have not been `taken`.
    """

    @property
    def cursor(self) -> str | None:
        """Where to go on behind everything that `receive` has given; None before anything is known."""

    @property
    def filters(self) -> tuple[str, ...]:
        """What is subscribed to."""

    async def open(self) -> None:
        """Begin, or go on behind what was received, over the dialect's channel of now."""

    async def receive(self) -> FeedEvent:
        """The next event. Who cancels this gives the channel up: only `open` or `close` may follow."""

    async def add(self, filters: Sequence[str], start: Start) -> None:
        """Listen to more filters; returns when the server has agreed. Before `open`, when open, or between.

        If the channel goes meanwhile it goes on waiting: the next `open` asks again.
        """

    async def remove(self, filters: Sequence[str]) -> None:
        """Listen to filters no more; what is on its way may still come."""

    def taken(self, count: int) -> None:
        """The application has dealt with so many messages: there is room for as many."""

    async def close(self) -> None:
        """End it at the server too, if that is there; never raises."""


class Dialect(Protocol):
    """One service, spoken over one channel after another."""

    bears_pings: bool
    """Whether its servers let us ping as often as we like on a line that is silent otherwise."""

    async def connect(self, channel: "grpc.aio.Channel") -> None:
        """Use a channel from now on, and make sure that a server of this kind answers and lets us in.

        Raises:
            UnknownService: the server does not offer this service.
        """

    async def publish(self, entries: Sequence[Entry]) -> Acknowledgement:
        """Publish a batch; calls may overlap, and batches keep the order of the calls."""

    def feed(self, options: FeedOptions) -> Feed:
        """A subscription, without filters and not open."""

    async def topics(self) -> Mapping[str, int]:
        """Topics with subscribers, and how many each has."""

    async def peers(self) -> Sequence[Peer]:
        """Other nodes."""

    async def why(self, topic: str, sequence: int, client_id: str | None) -> Explanation:
        """Why somebody got a message, or did not."""

    async def close(self) -> None:
        """Let go of everything; whoever waits gets `ConnectionLost`."""
