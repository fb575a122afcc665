"""A disk for tests: it commits when it is told to, forgets what was not committed, and can be full.

`mount` gives a broker its log and state store. After `crash` the next mount sees what was committed and
nothing else, as a process would that was killed. A commit takes two turns of the loop: in the first it is
made, in the second it is told of, so that a crash can come in between.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct, msgpack

from penstock.common.statement import Gap
from penstock.core.durability.records import TABLES
from penstock.core.ports.log import Listing, Lost, Settled, Span, Ticket, Wanted
from penstock.core.ports.turn import Sequencer, Turn
from penstock.errors import StorageUnavailable
from penstock.model import Reason
from penstock.runs import NEVER, Run, bare_shape
from tests.support.clock import ManualClock, ManualScheduler
from tests.support.samples import changed

RETRY_S = 0.1
"""How long after a commit that failed the next one is tried."""


class Content:
    """What is on the disk."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.last_sequences: dict[str, int] = {}  # of what has left
        self.holes: set[int] = set()  # offsets of messages that could not be written
        self.spoiled: set[int] = set()  # of runs that cannot be read
        self.first_offset = 1
        self.last_offset = 0
        self.epochs: list[int] = []  # where each began
        self.tables: dict[str, dict[str | int, Struct]] = {}

    def apply(self, turn: Turn) -> None:
        """Store a turn. Records travel through their bytes, as they would on a real disk."""
        self.runs += map(_as_stored, turn.runs)
        self.last_offset = turn.head
        for (table, key), record in turn.puts.items():
            turn.puts[table, key] = msgpack.decode(msgpack.encode(record), type=TABLES[table])
        for table in TABLES:
            turn.apply_to(table, self.tables.setdefault(table, {}))


class Disk:
    """One disk, which outlives the brokers on it."""

    def __init__(self) -> None:
        self.content = Content()
        self.is_stuck = False  # nothing is committed until someone calls `sync`
        self.is_full = False  # every commit fails
        self.log: DiskLog | None = None

    def mount(self, scheduler: ManualScheduler, clock: ManualClock) -> "DiskLog":
        """Begin a new epoch; whoever had the disk before has it no more."""
        self.content.epochs.append(self.content.last_offset + 1)
        self.log = DiskLog(self, scheduler, clock)
        return self.log

    def sync(self) -> None:
        """Commit the turns that are over, and tell of it."""
        if self.log is not None:
            self.log.sync()

    def crash(self) -> None:
        """Forget what is not committed; whoever waited for it waits for ever."""
        self.log = None

    def trim(self, until: int) -> None:
        """Let everything up to an offset leave, as retention does."""
        content = self.content
        for run in content.runs:
            if run.offset <= until:
                content.last_sequences[run.topic] = run.sequence + run.count - 1
        content.runs = [run for run in content.runs if run.offset > until]
        content.first_offset = until + 1

    def spoil(self, *offsets: int) -> None:
        """Let nobody read the runs any more that begin at these offsets."""
        self.content.spoiled.update(offsets)


class Pending:
    """A finished turn, or the present one, with the callbacks that wait for its commit."""

    def __init__(self, ticket: Ticket, turn: Turn | None = None) -> None:
        self.ticket = ticket
        self.turn = turn
        self.holes: set[int] = set()
        self.waiting: list[Settled] = []

    def give_up(self, turn: Turn) -> None:
        """Leave nothing of the messages but their places."""
        self.holes |= {run.offset + index for run in turn.runs for index in range(run.count)}
        turn.runs.clear()


class DiskLog:
    """The log of a disk, and its state store."""

    has_ended = False
    is_durable = True
    log_id = "00" * 8

    def __init__(self, disk: Disk, scheduler: ManualScheduler, clock: ManualClock) -> None:
        self._disk = disk
        self._scheduler = scheduler
        self._clock = clock
        self.epoch = len(disk.content.epochs)
        self.last_offset = disk.content.last_offset
        self.failure: Exception | None = None
        self.has_ended = False
        self.is_behind = False  # until `catch_up`
        self._behind: list[Callable[[], None]] = []
        self.sequencer = Sequencer(self.last_offset)
        self._committed: Ticket = 0
        self._open = Pending(1)
        self._turns: list[Pending] = []  # are over, and not committed
        self._is_busy = False  # a commit is about to be made, or to be told of
        self._written: tuple[int, Exception | None] | None = None  # how many turns, and why not
        self.state = DiskState(disk.content)

    @property
    def first_offset(self) -> int:
        return self._disk.content.first_offset

    @property
    def ticket(self) -> Ticket:
        return self._open.ticket

    def commit(self, turn: Turn) -> None:
        self._close_turn(turn)
        if self.failure is None:
            self._begin()

    def _close_turn(self, turn: Turn) -> None:
        pending, self._open = self._open, Pending(self._open.ticket + 1)
        pending.turn = turn
        if self.failure is not None:
            pending.give_up(turn)
        self._turns.append(pending)

    def _begin(self) -> None:
        if self._turns and not self._is_busy and not self._disk.is_stuck:
            self._is_busy = True
            self._scheduler.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._disk.is_stuck:
            self._is_busy = False
        elif self._is_busy and self._is_mounted:
            self._write()
            self._scheduler.call_soon(self._tell)

    @property
    def _is_mounted(self) -> bool:
        return self._disk.log is self

    def sync(self) -> None:
        """Make a commit of the turns that are over, and tell of it, at once."""
        self._write()
        self._tell()

    def _write(self) -> None:
        if self._written is not None:
            return
        if self.sequencer.turn.is_empty:  # what has nothing in it yet goes with the others
            nothing = Turn()
            nothing.head = self._head
            self._close_turn(nothing)
        failure = StorageUnavailable("the disk is full") if self._disk.is_full else None
        self._written = len(self._turns), failure
        if failure is None:
            content = self._disk.content
            for pending in self._turns:
                assert pending.turn is not None
                content.apply(pending.turn)
                content.holes |= pending.holes

    def _tell(self) -> None:
        if self._written is None or not self._is_mounted:
            return
        (count, self.failure), self._written, self._is_busy = self._written, None, False
        if self.failure is not None:
            self._give_up(self.failure)
            return
        turns, self._turns = self._turns[:count], self._turns[count:]
        if turns:
            assert turns[-1].turn is not None
            self._committed, self.last_offset = turns[-1].ticket, turns[-1].turn.head
        for turn in turns:
            for settled in turn.waiting:
                settled(None)
        self._begin()

    def _give_up(self, failure: Exception) -> None:
        """Give up every message that is not committed; the changes of state are tried again."""
        waiting: list[Settled] = []
        for pending in (*self._turns, self._open):
            pending.give_up(pending.turn or self.sequencer.turn)
            waiting += pending.waiting
            pending.waiting = []
        self._scheduler.call_later(RETRY_S, self._try_again)
        for settled in waiting:
            settled(failure)

    def _try_again(self) -> None:
        if self._disk.is_stuck:
            self._scheduler.call_later(RETRY_S, self._try_again)
        elif not self._is_busy:
            self._is_busy = True
            self._go_on()

    def is_committed(self, ticket: Ticket) -> bool:
        return ticket <= self._committed

    def when_committed(self, ticket: Ticket, callback: Settled) -> None:
        (turn,) = [turn for turn in (*self._turns, self._open) if turn.ticket == ticket]
        turn.waiting.append(callback)

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        self._behind.append(callback)

    def catch_up(self) -> None:
        """Let the log be behind no more."""
        self.is_behind = False
        callbacks, self._behind = self._behind, []
        for callback in callbacks:
            callback()

    def uncommitted(self, after: int) -> list[Run]:
        return [run for run in self._uncommitted() if run.offset + run.count - 1 > after]

    def _uncommitted(self) -> list[Run]:
        turns = [pending.turn or self.sequencer.turn for pending in (*self._turns, self._open)]
        return [run for turn in turns for run in turn.runs]

    @property
    def _head(self) -> int:
        """Where the last finished turn ends."""
        last = self._turns[-1].turn if self._turns else None
        return self.last_offset if last is None else last.head

    async def read(self, after: int, limit_bytes: int, wanted: Wanted | None = None) -> Span:
        runs = [run for run in self._disk.content.runs if run.offset + run.count - 1 > after]
        found = self._revive(run for run in runs if wanted is None or wanted(run.topic))
        gaps = (Gap(after + 1, self.first_offset - 1, Reason.RETENTION),)
        return Span(tuple(found), self.last_offset, gaps if after + 1 < self.first_offset else ())

    async def find_sequence(self, topic: str, sequence: int) -> int | None:
        runs = (run for run in self._disk.content.runs if run.topic == topic)
        return next((run.offset - 1 for run in runs if run.sequence + run.count > sequence), None)

    def fetch(self, offsets: Sequence[int], callback: Callable[[dict[int, Run]], None]) -> None:
        def tell() -> None:
            if self._is_mounted:
                callback(self.load(offsets))

        self._scheduler.call_soon(tell)

    def reason_of(self, offset: int) -> Reason:
        if offset < self.first_offset:
            return Reason.RETENTION
        is_hole = offset > self.last_offset or offset in self._disk.content.holes
        return Reason.NEVER_STORED if is_hole else Reason.DAMAGED

    def scan(self, after: int, wanted: Wanted) -> Iterator[Listing | Lost]:
        for run in self._revive(self._disk.content.runs):
            last = run.offset + run.count - 1
            if last > after and run.shape.qos and wanted(run.topic):
                is_spoiled = run.offset in self._disk.content.spoiled
                lost = Lost(run.topic, run.sequence, run.sequence + run.count - 1, last)
                yield lost if is_spoiled else Listing.of_runs([run])

    def load(self, offsets: Sequence[int]) -> dict[int, Run]:
        wanted = set(offsets)
        return {
            offset: run.part(offset - run.offset, 1)
            for run in (*self._revive(self._disk.content.runs), *self._uncommitted())
            for offset in range(run.offset, run.offset + run.count)
            if offset in wanted and run.offset not in self._disk.content.spoiled
        }

    def _revive(self, runs: Iterable[Run]) -> Iterator[Run]:
        """Runs with an expiry on the clock of this process."""
        wall_us, now = self._clock.wall_us(), self._clock.monotonic()
        for run in runs:
            if run.ttl == NEVER:
                yield run
            else:
                left = run.ttl - (wall_us - run.published_at) / 1_000_000
                yield changed(run, expires_at=now + min(left, run.ttl))

    def last_sequence(self, topic: str) -> int:
        runs = self._disk.content.runs
        gone = self._disk.content.last_sequences.get(topic, 0)
        return max((run.sequence + run.count - 1 for run in runs if run.topic == topic), default=gone)

    def last_sequences(self, topics: Sequence[str]) -> dict[str, int]:
        return {topic: self.last_sequence(topic) for topic in topics}

    has_unreadable_names = False

    async def topics_after(self, name: str, limit: int) -> list[tuple[str, int]]:
        content = self._disk.content
        names = {run.topic for run in content.runs} | content.last_sequences.keys()
        return [(each, self.last_sequence(each)) for each in sorted(names) if each > name][:limit]

    def epochs(self) -> range:
        return range(1, len(self._disk.content.epochs) + 1)

    def end_of(self, epoch: int) -> int | None:
        epochs = self._disk.content.epochs
        return self.last_offset if epoch == len(epochs) else epochs[epoch] - 1

    def offset_at(self, wall_us: int) -> int:
        earlier = [run.offset for run in self._disk.content.runs if run.published_at < wall_us]
        return max(earlier, default=0)


class DiskState:
    """The state store of a disk: what is committed."""

    def __init__(self, content: Content) -> None:
        self._content = content

    def scan(self, table: str) -> Iterator[tuple[str, Struct]]:
        for key, record in list(self._content.tables.get(table, {}).items()):
            assert isinstance(key, str)
            yield key, record

    def replay(self, table: str) -> Iterator[tuple[int, Struct]]:
        records = self._content.tables.get(table, {}).items()
        yield from sorted((key, record) for key, record in records if isinstance(key, int))


def _as_stored(run: Run) -> Run:
    """A run that was written and read: its payloads are bare, whatever wire they came from."""
    shape = bare_shape(run.shape.door, run.shape.qos, run.shape.retain)
    return changed(run, shape=shape)
