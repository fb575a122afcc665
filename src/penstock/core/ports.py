"""What core needs from outside. Each is small, and each has an in-memory twin.

`Form` and `Sink` come from a door: how a subscriber wants its bytes, and where they go. `Log` and
`StateStore` come from storage; the contract suites in `tests/contract` say what each owes. So does `Archive`,
which has no twin in memory: only a log on disk is read in bulk.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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

    async def find_sequence(self, topic: str, sequence: int) -> int | None:
        """An offset after which a topic's committed messages from this sequence on lie.

        None if there are none. Others may lie after it too.
        """
        ...

    def offset_at(self, wall_us: int) -> int:
        """The offset after which everything from this time on lies; a little more may lie after it too."""
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


LOG_COLUMNS = (
    "offset",
    "topic",
    "sequence",
    "epoch",
    "published_at",
    "expires_at",
    "qos",
    "retain",
    "payload",
    "content_type",
    "correlation_id",
    "message_id",
    "client_id",
    "node_id",
    "door",
    "properties",
    "logged_at",
)
"""The columns of the log as Arrow has it, in their order."""


class ArrowSpan(Struct, frozen=True):
    """What a log has between two offsets, as complete Arrow IPC streams one after another."""

    streams: tuple[bytes, ...]
    until: int
    rows: int
    gaps: tuple[Gap, ...] = ()


class Portion(Struct, frozen=True):
    """A part of a log: what lies after one offset, up to another."""

    after: int
    until: int
    rows: int
    """There may be fewer, but not more."""
    bytes: int
    """What it takes as stored, about."""


class Portions(Struct, frozen=True):
    """A part of a log in portions that meet, and what is known to be missing of it."""

    parts: tuple[Portion, ...]
    gaps: tuple[Gap, ...] = ()


class Hold(Struct, frozen=True):
    """A named position by which a reader keeps what it has not read: everything after `offset`."""

    name: str
    owner: str
    offset: int
    lapse_s: float
    """How long it lasts from each sign of life on."""
    lapses_at: int
    """When it lapses if there is none, in microseconds of wall time."""
    filters: tuple[str, ...] = ()
    """What its owner wants to read; nothing stands for everything. All topics are kept in any case."""


class Holds(Protocol):
    """All holds of a log. What is changed in one turn of the loop is stored with the log's commit of it."""

    def create(
        self, name: str, owner: str, offset: int, lapse_s: float, filters: tuple[str, ...] = ()
    ) -> Hold:
        """Keep everything after an offset; if the owner has a hold of this name already, it takes this place.

        Raises:
            InvalidHold: the name or the lapse time breaks a rule.
            NotAuthorized: someone else has a hold of this name.
            InvalidCursor: what follows the offset is not there any more.
            QuotaExceeded: there are too many holds, or too many of this owner.
        """
        ...

    def find(self, name: str, owner: str) -> Hold:
        """A hold of this owner.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it is someone else's.
        """
        ...

    def renew(self, name: str, owner: str) -> Hold:
        """Let a hold last for its whole lapse time again.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it is someone else's.
        """
        ...

    def move(self, name: str, owner: str, offset: int) -> Hold:
        """Keep only what is after this offset from now on; that renews the hold too.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it is someone else's.
            InvalidCursor: what follows the offset is not there any more.
        """
        ...

    def release(self, name: str, owner: str | None) -> None:
        """End a hold; without an owner, whoever has it.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it is someone else's.
        """
        ...

    def listing(self) -> list[Hold]:
        """All holds that have not lapsed, by name."""
        ...


class Archive(Protocol):
    """A log that is read in bulk, by offsets and off the loop. Nothing is seen before it is committed."""

    @property
    def log_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def holds(self) -> Holds:
        """What readers keep; asked on the loop."""
        ...

    def end_of(self, epoch: int) -> int | None:
        """The last committed offset of an epoch, None if it is not known; of this one, `last_offset`."""
        ...

    async def arrow(
        self,
        after: int,
        until: int,
        limit_bytes: int,
        wanted: Wanted,
        columns: Sequence[str] | None = None,
        limit_rows: int | None = None,
    ) -> ArrowSpan:
        """What is between two offsets as Arrow streams of the same schema, about `limit_bytes` of them.

        A read that looked at much and found little ends as well, but it always gets on. One that has all rows
        of its limit ends with the last of them.

        Args:
            columns: some of `LOG_COLUMNS`, in the order they are to have; None for all.
        """
        ...

    async def arrow_end(self, columns: Sequence[str] | None, metadata: Mapping[str, str]) -> bytes:
        """A complete Arrow stream of the same schema with one empty batch that carries this metadata."""
        ...

    async def find_time(self, wall_us: int) -> int:
        """The offset after which the first message of this time or later lies; 0 if that may have left."""
        ...

    async def portions(
        self,
        after: int,
        until: int,
        parts: int,
        wanted: Wanted,
        limit_rows: int | None = None,
        limit_bytes: int | None = None,
    ) -> Portions:
        """What is between two offsets in at most so many parts of about the same size, without reading it.

        They meet, and there is at least one. With a limit on rows they end before there are more. With one on
        bytes, as stored, they do too, but have at least one piece that is asked for, so that they get on. The
        gaps are those that show without a look at the rows: a read may find more that cannot be read.
        """
        ...
