"""What core needs from outside. Each is small, and each has an in-memory twin.

`Form` and `Sink` come from a door: how a subscriber wants its bytes, and where they go. `Log` and
`StateStore` come from storage; the contract suites in `tests/contract` say what each owes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from penstock.model import Reason, Run

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
    def is_retained(self) -> bool:
        """For values that were published before the subscription was made."""
        ...

    @property
    def has_cursor(self) -> bool:
        """Each message tells how far its subscriber has come: then they have to leave in their order."""
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


Ticket = int
"""The number of a commit. Commits end in the order of their numbers."""

Settled = Callable[[Exception | None], None]
"""Called when a commit has ended: with None if it was made, with the error if it could not be."""


class Position(Struct, frozen=True):
    """A place in one log: everything up to and including `offset` has been seen."""

    log_id: str
    epoch: int
    offset: int


class Gap(Struct, frozen=True):
    """Offsets that a log should have and does not have, and why."""

    first: int
    last: int
    reason: Reason


class Lost(Struct, frozen=True):
    """Messages of one topic that a log should have and cannot read: the first and the last sequence."""

    topic: str
    first: int
    last: int
    until: int
    """Their offsets are not behind this one."""


class Span(Struct, frozen=True):
    """What a log can tell of the offsets after a position: the runs it has, and how far it looked.

    Offsets between the position and `until` that are neither in `runs` nor in `gaps` were not asked for,
    or belong to topics that are not kept.
    """

    runs: tuple[Run, ...]
    until: int
    gaps: tuple[Gap, ...] = ()


Wanted = Callable[[str], bool]
"""Says of a topic whether its messages are asked for. It is asked once for each topic of a read.

What `model.is_public` says a log may know of many messages at once, without asking.
"""


class Log(Protocol):
    """One node's ordered record of all topics. Appending is a memory operation; committing is not.

    Offsets rise by one for every published message, kept or not, so the log is told of both. What is appended
    and put in one turn of the loop is committed together: all of it, or nothing.
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

    @property
    def last_offset(self) -> int:
        """The last offset that is committed, kept or not."""
        ...

    @property
    def is_durable(self) -> bool:
        """What is committed outlives the process, so that acknowledgements have to wait for it."""
        ...

    @property
    def failure(self) -> Exception | None:
        """Why nothing can be committed at present, if that is so. It gets well by itself."""
        ...

    @property
    def ticket(self) -> Ticket:
        """The commit that takes what is appended and put in this turn."""
        ...

    def append(self, run: Run) -> None:
        """Keep a run; never waits. Runs come in the order of their offsets."""
        ...

    def end_turn(self, head: int, *, is_urgent: bool) -> None:
        """A turn of the loop is over and `head` the newest offset: commit what it left.

        Someone waits for what is urgent; the rest may wait for company.
        """
        ...

    def is_committed(self, ticket: Ticket) -> bool:
        """Whether what has this ticket is safe."""
        ...

    def when_committed(self, ticket: Ticket, callback: Settled) -> None:
        """Call back when a commit that has not ended yet ends; in the order of asking."""
        ...

    def uncommitted(self, after: int) -> list[Run]:
        """Runs after an offset that are appended but not committed, oldest first."""
        ...

    async def read(self, after: int, limit_bytes: int, wanted: Wanted | None = None) -> Span:
        """Committed runs after an offset, oldest first, about `limit_bytes` of them.

        The first run may begin at or before the offset, if it also reaches beyond. A read that looked at much
        and found little ends as well: there is more until `until` is the last committed offset.
        """
        ...

    def fetch(self, offsets: Sequence[int], callback: Callable[[dict[int, Run]], None]) -> None:
        """Look for single messages by offset, off the loop, and call back with those that are there."""
        ...

    def reason_of(self, offset: int) -> Reason:
        """Why a message is not there that someone was to get."""
        ...

    def scan(self, after: int, wanted: Wanted) -> Iterator[Run | Lost]:
        """Every committed run at QoS 1 or 2 after an offset: at start, when nobody waits for the loop.

        Where some cannot be read, it tells of which topics they are, if that is known.
        """
        ...

    def load(self, offsets: Sequence[int]) -> dict[int, Run]:
        """The same as `fetch`, at start, when nobody waits for the loop."""
        ...

    def last_sequence(self, topic: str) -> int:
        """The last sequence of a topic that was ever committed; 0 if there was none.

        While the log cannot look it up it answers `last_offset`, which no topic can have passed.
        """
        ...

    async def topics_after(self, name: str, limit: int) -> list[tuple[str, int]]:
        """Topics that were committed before the log was opened, by name: the first so many after one.

        Each comes with a sequence that it has reached. What was committed since may be among them or not.
        """
        ...

    async def find_sequence(self, topic: str, sequence: int) -> int | None:
        """An offset after which a topic's committed messages from this sequence on lie.

        None if there are none. Others may lie after it too.
        """
        ...

    def offset_at(self, wall_us: int) -> int:
        """The offset after which everything from this time on lies; a little more may lie after it too."""
        ...

    def epochs(self) -> Sequence[int]:
        """The epochs that are known, oldest first; numbers may be left out, and the last is that of now."""
        ...

    def end_of(self, epoch: int) -> int | None:
        """The last committed offset of an epoch, None if it is not known; of this one, `last_offset`."""
        ...


class StateStore(Protocol):
    """What must outlive a connection: records by table and key. A put replaces.

    What is changed in one turn of the loop belongs to the log's commit of that turn.
    """

    def put(self, table: str, key: str, value: Struct) -> None: ...

    def delete(self, table: str, key: str) -> None: ...

    def scan(self, table: str) -> Iterator[tuple[str, Struct]]:
        """All records of a table, in any order."""
        ...

    def append(self, table: str, value: Struct) -> int:
        """Add a record to a table without keys, and answer its number; numbers rise."""
        ...

    def replay(self, table: str) -> Iterator[tuple[int, Struct]]:
        """All records of a table without keys, by their numbers."""
        ...

    def cut(self, table: str, before: int) -> None:
        """Remove the records of a table without keys whose numbers are lower."""
        ...
