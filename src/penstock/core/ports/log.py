"""Log port: the ordered record of all topics of one node.

Storage implements it on disk and in memory. `tests/contract` holds every implementation to the same suite.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from penstock.common.statement import Gap
from penstock.core.ports.turn import Sequencer, Turn
from penstock.model import Reason
from penstock.runs import Run

Ticket = int
"""The number of a commit. Commits end in the order of their numbers."""

Settled = Callable[[Exception | None], None]
"""Called when a commit has ended: with None if it was made, with the error if it could not be."""


class Lost(Struct, frozen=True):
    """Messages of one topic that a log should have and cannot read: the first and the last sequence."""

    topic: str
    first: int
    last: int
    until: int
    """Their offsets are not behind this one."""


class Listing:
    """Stored messages at QoS 1 or 2 by column, oldest first: no object is made for a single message.

    `offsets`, `topics` and `sizes` have an item for each message: its offset, the index of its topic in
    `names`, its size in bytes. There may be names without a message.
    """

    __slots__ = ("_make_runs", "may_expire", "names", "offsets", "sizes", "topics")

    def __init__(
        self,
        names: Sequence[str],
        topics: Sequence[int],
        offsets: Sequence[int],
        sizes: Sequence[int],
        may_expire: bool,
        make_runs: Callable[[], Sequence[Run]],
    ) -> None:
        """Args:
        may_expire: some message has a lifetime.
        make_runs: reads the messages again, as runs.
        """
        self.names = names
        self.topics = topics
        self.offsets = offsets
        self.sizes = sizes
        self.may_expire = may_expire
        self._make_runs = make_runs

    @classmethod
    def of_runs(cls, runs: Sequence[Run]) -> "Listing":
        """The messages of runs."""
        names: dict[str, int] = {}
        topics: list[int] = []
        offsets: list[int] = []
        sizes: list[int] = []
        for run in runs:
            count = run.count
            topics += [names.setdefault(run.topic, len(names))] * count
            offsets += range(run.offset, run.offset + count)
            sizes += [run.stride] * count
        may_expire = any(run.ttl for run in runs)
        return cls(list(names), topics, offsets, sizes, may_expire, lambda: runs)

    def runs(self) -> Sequence[Run]:
        """All messages as runs."""
        return self._make_runs()


class Span(Struct, frozen=True):
    """Result of a read after a position: the runs, and how far it looked.

    Offsets between the position and `until` that are neither in `runs` nor in `gaps` were not asked for,
    or belong to topics that are not captured.
    """

    runs: tuple[Run, ...]
    until: int
    gaps: tuple[Gap, ...] = ()


Wanted = Callable[[str], bool]
"""Says of a topic whether its messages are asked for. It is asked once for each topic of a read.

What `model.is_public` says a log may know of many messages at once, without asking.
"""


class LogWriter(Protocol):
    """Write side of the log: turns in, commits out. Building a turn is a memory operation; committing is not.

    A commit has one turn or several, each whole.
    """

    @property
    def is_durable(self) -> bool:
        """Committed messages outlive the process, so acknowledgements have to wait for the commit."""
        ...

    @property
    def failure(self) -> Exception | None:
        """Error that prevents commits at present; None if there is none. The log retries by itself."""
        ...

    @property
    def has_ended(self) -> bool:
        """Its files are gone: no commit succeeds before a restart."""
        ...

    @property
    def is_behind(self) -> bool:
        """Too much waits for its commit: publishers of stored messages are held back."""
        ...

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        """Call back once when the log is not behind any more, or has given up what waited.

        To be called in a turn with messages, when the room of the sequencer is used up.
        """
        ...

    @property
    def sequencer(self) -> Sequencer:
        """Source of offsets, with the turn that is being built."""
        ...

    @property
    def ticket(self) -> Ticket:
        """The commit that takes the present turn."""
        ...

    def commit(self, turn: Turn) -> None:
        """Take over a finished turn; never waits. Turns come in the order of their offsets.

        A turn that is urgent is committed soon; others may wait for more turns to join.
        """
        ...

    def is_committed(self, ticket: Ticket) -> bool:
        """Return whether a commit is done."""
        ...

    def when_committed(self, ticket: Ticket, callback: Settled) -> None:
        """Call back when a commit that has not ended yet ends; in the order of asking."""
        ...


class LogReader(Protocol):
    """Read side of the log: committed runs by offset, and those that are not committed yet."""

    @property
    def first_offset(self) -> int:
        """The oldest offset it may still have; everything before has left by retention."""
        ...

    @property
    def last_offset(self) -> int:
        """The last offset that is committed, kept or not."""
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
        """Return the reason why a message is not there."""
        ...

    def scan(self, after: int, wanted: Wanted) -> Iterator[Listing | Lost]:
        """Iterate over all committed messages at QoS 1 or 2 after an offset; blocks, for use at start.

        The first run may begin at or before the offset, if it also reaches beyond. For unreadable messages it
        yields their topics, if these are known.
        """
        ...

    def load(self, offsets: Sequence[int]) -> dict[int, Run]:
        """Load single messages by offset like `fetch`; blocks, for use at start."""
        ...


class LogCatalog(Protocol):
    """Catalog of the log: topics, their sequences, and positions by time."""

    def last_sequence(self, topic: str) -> int:
        """The last sequence of a topic that was ever committed; 0 if there was none.

        While the log cannot look it up it returns `last_offset`, which no topic can have passed.
        """
        ...

    def last_sequences(self, topics: Sequence[str]) -> dict[str, int]:
        """The last sequences of many topics, like `last_sequence`; blocks, for use at start."""
        ...

    async def topics_after(self, name: str, limit: int) -> list[tuple[str, int]]:
        """Return the first names after one, of topics that were committed before the log was opened.

        Each comes with a sequence that it has reached. Topics committed since may be included or not.
        """
        ...

    @property
    def has_unreadable_names(self) -> bool:
        """`topics_after` has left out a topic or a sequence that it could not read."""
        ...

    async def find_sequence(self, topic: str, sequence: int) -> int | None:
        """An offset after which a topic's committed messages from this sequence on lie.

        None if there are none. Others may lie after it too.
        """
        ...

    def offset_at(self, wall_us: int) -> int:
        """The offset after which everything from this time on lies; a little more may lie after it too."""
        ...


class LogEpochs(Protocol):
    """Identity of the log and its epochs."""

    @property
    def log_id(self) -> str:
        """Id of the log; a log in memory has a new one at each start."""
        ...

    @property
    def epoch(self) -> int:
        """Rises by one with every start."""
        ...

    def epochs(self) -> Sequence[int]:
        """The epochs that are known, oldest first; numbers may be left out, and the last is that of now."""
        ...

    def end_of(self, epoch: int) -> int | None:
        """The last committed offset of an epoch, None if it is not known; of this one, `last_offset`."""
        ...


class Log(LogWriter, LogReader, LogCatalog, LogEpochs, Protocol):
    """Ordered record of all topics of one node.

    Offsets rise by one for every published message, captured or not.
    """
