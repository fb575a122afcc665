"""Group commits: everything since the last one, as one atomic write and one fsync.

The loop gathers; one thread writes. A commit starts as soon as the one before has ended, so a quiet server
acknowledges at once and a busy one batches by itself. Only whole turns of the loop are committed, because a
turn's messages and its changes of state belong together.

When a write fails, its messages are given up and whoever waits for them is told; the changes of state are
kept, because the sessions they tell of live on, and are written with the next commit that works. Until then
nothing is accepted, and every now and then it is tried again.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from queue import SimpleQueue
from threading import Thread
from typing import Literal, Protocol, TypeVar

import structlog
from msgspec import Struct, msgpack

from penstock.core.clock import Clock, Handle
from penstock.core.ports import Settled, Ticket
from penstock.errors import StorageUnavailable
from penstock.model import Run
from penstock.storage.disk.index import Index, Piece
from penstock.storage.disk.layout import COMMIT_KEY, ROWS, STATE, offset_key
from penstock.storage.disk.mark import Mark
from penstock.storage.disk.records import Frame, Range, encode_frame, join_ranges
from penstock.storage.disk.store import Changes, Store

log = structlog.get_logger("penstock.log")

T = TypeVar("T")
Durability = Literal["fsync", "os", "memory"]

FRAME_BYTES = 1024 * 1024
"""About how much one stored value holds; a commit may have several."""
COMMIT_RUNS, COMMIT_BYTES = 5_000, 1024 * 1024
"""A commit takes no further turn after this much: the write holds up everyone while it lasts."""
QUEUED_BATCHES = 64
"""How many commits may wait for a slow disk before nothing more is taken."""
MOST_HOLES = 1_000
"""How exactly a commit tells which messages could not be stored, however long it lasted."""
RUN_BYTES = 100
"""What a run weighs beside its bytes."""
LAZY_S = 0.05
"""How long changes that nobody waits for may wait for company."""
RETRY_S = (0.1, 0.2, 0.5, 1.0)
"""How long to wait before the next try, after each that failed; the last one counts for all that follow."""

_encoder = msgpack.Encoder()
_first_of = attrgetter("first")
_offset_of = attrgetter("offset")


class Loop(Protocol):
    """What is needed of the event loop."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Handle: ...


class Batch:
    """What one commit takes: filled on the loop, then handed to the thread and not touched again."""

    def __init__(self, number: Ticket, first: int) -> None:
        self.number = number
        self.first = first  # the offset after the last commit's last
        self.last = first - 1
        self.runs: list[Run] = []
        self.holes: list[Range] = []
        self.state: dict[bytes, Struct | None] = {}
        self.cuts: dict[bytes, bytes] = {}
        self.waiting: list[Settled] = []
        self.whole = 0  # how many runs belong to turns that are over
        self.bytes = 0  # of these
        self.is_whole = True  # no turn is open that changed the state
        self.is_wanted = False  # someone waits for it
        self.is_heir = False  # something of it may be there from a write that failed
        self.failure: Exception | None = None

    @property
    def is_empty(self) -> bool:
        """There is nothing to write."""
        return not (self.runs or self.state or self.cuts or self.last >= self.first)

    @property
    def is_between_turns(self) -> bool:
        """Everything in it belongs to turns that are over."""
        return self.is_whole and len(self.runs) == self.whole

    @property
    def is_full(self) -> bool:
        """It takes no further turn."""
        return self.whole >= COMMIT_RUNS or self.bytes >= COMMIT_BYTES

    def end_turn(self, head: int) -> None:
        """A turn is over."""
        new = self.runs[self.whole :] if self.whole else self.runs
        self.bytes += sum([len(run.slab) for run in new])
        self.whole, self.is_whole = len(self.runs), True
        self.last = max(self.last, head)

    def give_up_runs(self) -> None:
        """Leave nothing of the messages but their places."""
        if self.runs:
            places = [(run.offset, run.offset + run.count - 1) for run in self.runs]
            self.holes = _coarser([*self.holes, *places])
            self.runs.clear()
        self.whole = self.bytes = 0

    def cut(self, start: bytes, stop: bytes) -> None:
        """Delete what is stored from one key up to another, and put nothing of it."""
        _remove(self.state, start, stop)  # cuts are made before puts
        self.cuts[start] = max(stop, self.cuts.get(start, stop))

    def inherit(self, failed: "Batch") -> None:
        """Take over what a failed commit leaves: its changes of state, and the places of its messages."""
        failed.give_up_runs()
        self.give_up_runs()
        for start, stop in self.cuts.items():
            failed.cut(start, stop)
        self.state = failed.state | self.state
        self.cuts = failed.cuts
        self.holes = _coarser([*failed.holes, *self.holes])
        self.first = failed.first
        self.last = max(self.last, failed.last)
        self.is_heir = True


class Commits:
    """The open commit, the one that is being written, and who waits for them."""

    def __init__(
        self,
        store: Store,
        index: Index,
        mark: Mark,
        loop: Loop,
        clock: Clock,
        *,
        epoch: int,
        first: int,
        number: Ticket,
        durability: Durability,
    ) -> None:
        self._store = store
        self._index = index
        self._mark = mark
        self._loop = loop
        self._clock = clock
        self._epoch = epoch
        self._is_synced = durability == "fsync"
        self._is_awaited = durability != "memory"
        self._committed = number
        self.last_offset = first - 1  # the last that is committed
        mark.epoch = epoch
        self.open = Batch(number + 1, first)
        self._queued: deque[Batch] = deque()
        self._writing: Batch | None = None
        self._lazy: Handle | None = None
        self._failures = 0
        self._is_pausing = False  # after a failure, until the next try
        self.failure: Exception | None = None
        self.on_committed: Callable[[], None] = lambda: None
        self._queue: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread = Thread(target=self._write_all, name="commits", daemon=True)
        self._thread.start()

    # From the loop

    def is_committed(self, ticket: Ticket) -> bool:
        """Whether what has this ticket may be relied on."""
        return ticket <= self._committed or not self._is_awaited

    def when_committed(self, ticket: Ticket, callback: Settled) -> None:
        """Call back when a commit has ended."""
        if ticket <= self._committed:
            callback(None)
            return
        batch = self.open
        if batch.number != ticket:
            batch = next(batch for batch in self._uncommitted_batches() if batch.number == ticket)
        batch.waiting.append(callback)
        batch.is_wanted = True
        self._begin()

    def put(self, key: bytes, value: Struct | None) -> None:
        """Change the state; None deletes."""
        self.open.state[key] = value
        self.open.is_whole = False

    def cut(self, start: bytes, stop: bytes) -> None:
        """Delete everything from one key up to another."""
        self.open.cut(start, stop)
        self.open.is_whole = False

    def apply_changes(self, found: dict[bytes, Struct], prefix: bytes) -> None:
        """Bring records by key up to date with what is not committed yet."""
        for batch in self._uncommitted_batches():
            for start, stop in batch.cuts.items():
                _remove(found, start, stop)
            for key, value in batch.state.items():
                if not key.startswith(prefix):
                    continue
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = value

    def _uncommitted_batches(self) -> tuple[Batch, ...]:
        return (*((self._writing,) if self._writing else ()), *self._queued, self.open)

    def end_turn(self, head: int, *, is_urgent: bool) -> None:
        """A turn is over: everything in the open commit belongs together now."""
        batch = self.open
        if self.failure is not None:  # only what asks for no answer is published now
            batch.give_up_runs()
        batch.is_wanted = batch.is_wanted or is_urgent or len(batch.runs) > batch.whole
        batch.end_turn(head)
        self._begin()
        if batch is self.open and batch.is_full and not self._failures:
            self._queued.append(batch)
            self.open = Batch(batch.number + 1, batch.last + 1)
            if len(self._queued) >= QUEUED_BATCHES:
                self.failure = StorageUnavailable("the disk does not keep up")

    def _begin(self) -> None:
        """Start to write, if nothing is being written and there is something to write."""
        if self._writing is not None or self._is_pausing:
            return
        if self._queued:
            self._start(self._queued.popleft())
            return
        batch = self.open
        if not batch.is_between_turns:
            return  # the end of the turn begins it
        if batch.is_empty and not (batch.waiting or self._failures):
            return
        if not batch.is_wanted:
            if self._lazy is None:
                self._lazy = self._loop.call_later(LAZY_S, self._begin_lazy)
            return
        self._start(batch)

    def _begin_lazy(self) -> None:
        self._lazy = None
        self.open.is_wanted = True
        self._begin()

    def _start(self, batch: Batch) -> None:
        self._writing = batch
        if batch is self.open:
            self.open = Batch(batch.number + 1, batch.last + 1)
        self._queue.put(batch)

    def commit_now(self) -> None:
        """At start: write what was put, before anything else happens. If it fails, it is tried again."""
        batch, self.open = self.open, Batch(self.open.number + 1, self.open.first)
        pieces, failure = self._try(batch)
        self._on_written(batch, pieces, failure)

    def uncommitted(self) -> list[Run]:
        """Runs that are not committed yet, oldest first."""
        return [run for batch in self._uncommitted_batches() for run in batch.runs]

    def find(self, offsets: Iterable[int]) -> dict[int, Run]:
        """Single messages by offset, of those that are not committed yet."""
        batches = self._uncommitted_batches()
        found: dict[int, Run] = {}
        for offset in offsets:
            runs = batches[max(bisect_right(batches, offset, key=_first_of) - 1, 0)].runs
            place = bisect_right(runs, offset, key=_offset_of) - 1
            if place >= 0 and offset < runs[place].offset + runs[place].count:
                found[offset] = runs[place].part(offset - runs[place].offset, 1)
        return found

    def _on_written(self, batch: Batch, pieces: Sequence[Piece], failure: Exception | None) -> None:
        """Back on the loop: tell everyone who waits."""
        self._writing = None
        if failure is None:
            self._committed, self.last_offset = batch.number, batch.last
            for piece in pieces:
                self._index.add(piece)
            if self._failures:
                log.info("the log can be written again", offset=batch.last)
            if len(self._queued) * 2 < QUEUED_BATCHES:
                self.failure = None
            self._failures = 0
            _tell(batch.waiting, None)
            self.on_committed()
        else:
            self._on_failure(batch, failure)
        self._begin()

    def _on_failure(self, batch: Batch, failure: Exception) -> None:
        failed = [batch, *self._queued]
        refused = sum(len(each.runs) for each in (*failed, self.open))
        waiting = [callback for each in (*failed, self.open) for callback in each.waiting]
        is_news = not self._failures
        self._queued.clear()
        for each in reversed(failed):
            self.open.inherit(each)
        self.open.waiting = []
        self.failure = failure
        delay = RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._failures += 1
        self._is_pausing = True
        self._loop.call_later(delay, self._try_again)
        if is_news:
            log.error("the log cannot be written", reason=str(failure), runs_refused=refused)
        _tell(waiting, failure)

    def _try_again(self) -> None:
        """The changes of state have to be written anyway: they show whether it works again."""
        self._is_pausing = False
        self.open.is_wanted = True
        self._begin()

    @property
    def is_idle(self) -> bool:
        """Nothing is written, and nobody waits."""
        return self._writing is None and not self._queued and not self.open.waiting

    def close(self) -> Exception | None:
        """Write what is left and stop; answer why not, if it could not be written."""
        if self._lazy is not None:
            self._lazy.cancel()
        if not self.open.is_between_turns:  # no more of this turn is to come
            self.open.end_turn(max((run.offset + run.count - 1 for run in self.open.runs), default=0))
        self._queue.put(None)
        self._thread.join()
        failed = self._writing if self._writing is not None and self._writing.failure is not None else None
        for batch in (*self._queued, self.open):
            if failed is not None:  # what came after it must not be there without it
                batch.inherit(failed)
            if not batch.is_empty:
                self._try(batch)
                failed = batch if batch.failure is not None else None
        return None if failed is None else failed.failure

    # In the thread

    def _write_all(self) -> None:
        while (batch := self._queue.get()) is not None:
            pieces, failure = self._try(batch)
            self._loop.call_soon_threadsafe(self._on_written, batch, pieces, failure)

    def _try(self, batch: Batch) -> tuple[list[Piece], Exception | None]:
        try:
            if self._store.needs_reopen:
                self._reopen()
            return self._write(batch), None
        except Exception as error:  # whatever it is, nobody may take it for written
            known = isinstance(error, StorageUnavailable)
            batch.failure = error if known else StorageUnavailable(f"{type(error).__name__}: {error}")
            return [], batch.failure

    def _reopen(self) -> None:
        self._store.reopen()
        if self._store.salvage is not None:
            log.warning("the log was damaged", what=self._store.salvage.note)

    def _write(self, batch: Batch) -> list[Piece]:
        changes = Changes()
        pieces: list[Piece] = []
        for frame in self._frames(batch):
            data = encode_frame(frame)
            changes.put(ROWS, offset_key(frame.first), data)
            count = sum([run.count for run in frame.runs])
            began_at = frame.runs[0].published_at if frame.runs else frame.committed_at
            pieces.append(
                Piece(frame.first, frame.last, count, len(data), began_at, is_sealed=False, holes=frame.holes)
            )
        if batch.is_heir and pieces:
            rest = offset_key(pieces[-1].first + 1), offset_key(batch.last + 1)
            changes.delete_range(ROWS, *rest)  # what a write that failed may have left there all the same
        for start, stop in batch.cuts.items():
            changes.delete_range(STATE, start, stop)
        for key, value in batch.state.items():
            if value is None:
                changes.delete(STATE, key)
            else:
                changes.put(STATE, key, _encoder.encode(value))
        if batch.is_empty:
            return pieces
        changes.put(STATE, COMMIT_KEY, offset_key(batch.number))
        self._store.check_space()
        self._store.write(changes, sync=self._is_synced)
        self._mark.write(batch.last, batch.number)
        return pieces

    def _frames(self, batch: Batch) -> list[Frame]:
        """The batch's runs in values of a size that can be read one by one."""
        if batch.last < batch.first:
            return []
        committed_at = self._clock.wall_us()
        frames: list[Frame] = []
        first, size, start, holes = batch.first, 0, 0, tuple(batch.holes)  # these came before the runs
        is_small = batch.bytes + len(batch.runs) * RUN_BYTES < FRAME_BYTES
        for position, run in enumerate(() if is_small else batch.runs):  # most are, and need no look at each
            size += len(run.slab) + RUN_BYTES
            if size >= FRAME_BYTES:
                last = run.offset + run.count - 1
                runs = batch.runs[start : position + 1]
                frames.append(Frame(self._epoch, first, last, committed_at, runs, holes))
                first, size, start, holes = last + 1, 0, position + 1, ()
        if first <= batch.last:
            rest = batch.runs[start:]
            frames.append(Frame(self._epoch, first, batch.last, committed_at, rest, holes))
        return frames


def _tell(waiting: Sequence[Settled], failure: Exception | None) -> None:
    """Tell everyone; who makes a mistake about it must not keep it from the others."""
    for callback in waiting:
        try:
            callback(failure)
        except Exception:
            log.exception("the end of a commit could not be told")


def _remove(records: dict[bytes, T], start: bytes, stop: bytes) -> None:
    """Delete everything from one key up to another."""
    for key in [key for key in records if start <= key < stop]:
        del records[key]


def _coarser(holes: Sequence[Range]) -> list[Range]:
    """Not more ranges than are worth their room. What comes between two of them is not stored either."""
    joined = join_ranges(holes)
    while len(joined) > MOST_HOLES:
        pairs = (joined[place : place + 2] for place in range(0, len(joined), 2))
        joined = [(pair[0][0], pair[-1][1]) for pair in pairs]
    return joined
