"""What core needs from outside. Each is small, and each has an in-memory twin.

`Form` and `Sink` come from a door: how a subscriber wants its bytes, and where they go. `Log` and
`StateStore` come from storage. The contract suites in `tests/contract` say what each owes.
"""

from asyncio import Future
from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from penstock.model import Run

Frame = tuple[bytes, bytes, Run]
"""One message cut where its delivery number goes: before, after, and the run it is (of one message)."""


class Form(Protocol):
    """How a class of subscribers wants a run: subscribers with equal forms get identical bytes.

    Forms are values: hashable and equal when they mean the same.
    """

    @property
    def qos(self) -> int:
        """The highest level of service; a message leaves at the lower of this and its own."""
        ...

    @property
    def no_local(self) -> bool:
        """Do not send a subscriber its own messages."""
        ...

    @property
    def limit_bytes(self) -> int:
        """The largest frame this subscriber takes; 0 if it did not say."""
        ...

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages at QoS 0, joined. Messages that exceed the form's size limit are left out."""
        ...

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        """All messages at QoS 1 or 2, each cut where its delivery number goes; too large ones left out."""
        ...

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        """The messages that `encode` and `frames` leave out."""
        ...

    def merge(self, other: "Form") -> "Form":
        """The form of a subscriber that wants both."""
        ...

    def as_retained(self) -> "Form":
        """The same for values that were published before the subscription was made."""
        ...


class Sink(Protocol):
    """The way out to a connected subscriber, and the way to hold it back when it publishes."""

    def write(self, data: bytes) -> None:
        """Send bytes; never waits. When the way is full the door tells core by `Broker.pause`."""
        ...

    def hold(self, *, is_unacknowledged: bool) -> None:
        """Hold a publisher back: withhold its acknowledgements, or read no more where there are none."""
        ...

    def release(self) -> None:
        """Undo `hold`."""
        ...

    def close(self, reason: str) -> None:
        """End the connection for one of the reasons of `sessions.Ending`."""
        ...


class Ticket(Protocol):
    """A place in the log's next commit."""

    @property
    def offset(self) -> int:
        """The last offset the ticket covers."""
        ...


class Position(Struct, frozen=True):
    """A place in one log: everything up to and including `offset` has been seen."""

    log_id: str
    epoch: int
    offset: int


class Span(Struct, frozen=True):
    """What a log can tell of the offsets after a position: the runs it has, and how far it looked."""

    runs: tuple[Run, ...]
    until: int


class Log(Protocol):
    """One node's ordered record of all topics. Appending is a memory operation; committing is not.

    Offsets rise by one for every published message, kept or not, so the log is told of both.
    """

    @property
    def log_id(self) -> str:
        """Which log this is; a log in memory has a new one at each start."""
        ...

    @property
    def epoch(self) -> int:
        """Rises by one with every start."""
        ...

    @property
    def first_offset(self) -> int:
        """The oldest offset it may still have; everything before has left by retention."""
        ...

    def append(self, run: Run) -> Ticket:
        """Into the open batch, never waits. Runs come in the order of their offsets."""
        ...

    def committed(self, ticket: Ticket) -> "Future[None] | None":
        """One future per commit, shared by its waiters; None when it is committed already."""
        ...

    def read(self, after: int, limit_bytes: int) -> Span:
        """Committed runs after an offset, oldest first, about `limit_bytes` of them."""
        ...


class StateStore(Protocol):
    """What must outlive a connection: records by table and key. A put replaces."""

    def put(self, table: str, key: str, value: Struct) -> None: ...

    def delete(self, table: str, key: str) -> None: ...

    def scan(self, table: str) -> Iterator[tuple[str, Struct]]:
        """All records of a table, in the order of their first put."""
        ...
