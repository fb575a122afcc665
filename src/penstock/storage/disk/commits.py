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
from typing import Literal, Protocol

import structlog
from msgspec import Struct

from penstock.core.clock import Clock, Handle
from penstock.core.ports import Settled, Ticket
from penstock.errors import StorageUnavailable
from penstock.model import Run
from penstock.storage.disk.commit import Commit, remove_between
from penstock.storage.disk.index import Index, Piece
from penstock.storage.disk.mark import Mark
from penstock.storage.disk.store import Store

log = structlog.get_logger("penstock.log")

Durability = Literal["fsync", "os", "memory"]

QUEUED_COMMITS = 64
"""How many commits may wait for a slow disk before nothing more is taken."""
LAZY_S = 0.05
"""How long changes that nobody waits for may wait for company."""
RETRY_S = (0.1, 0.2, 0.5, 1.0)
"""How long to wait before the next try, after each that failed; the last one counts for all that follow."""

_first_of = attrgetter("first")
_offset_of = attrgetter("offset")


class Loop(Protocol):
    """What is needed of the event loop."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Handle: ...


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
        self.open = Commit(number + 1, first)
        self._queued: deque[Commit] = deque()
        self._writing: Commit | None = None
        self._lazy: Handle | None = None
        self._failures = 0
        self._is_pausing = False  # after a failure, until the next try
        self.failure: Exception | None = None
        self.on_committed: Callable[[], None] = lambda: None
        self._queue: SimpleQueue[Commit | None] = SimpleQueue()
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
        commit = self.open
        if commit.number != ticket:
            commit = next(commit for commit in self._unfinished() if commit.number == ticket)
        commit.waiting.append(callback)
        commit.is_wanted = True
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
        for commit in self._unfinished():
            for start, stop in commit.cuts.items():
                remove_between(found, start, stop)
            for key, value in commit.state.items():
                if not key.startswith(prefix):
                    continue
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = value

    def _unfinished(self) -> tuple[Commit, ...]:
        return (*((self._writing,) if self._writing else ()), *self._queued, self.open)

    def end_turn(self, head: int, *, is_urgent: bool) -> None:
        """A turn is over: everything in the open commit belongs together now."""
        commit = self.open
        if self.failure is not None:  # only what asks for no answer is published now
            commit.give_up_runs()
        commit.is_wanted = commit.is_wanted or is_urgent or len(commit.runs) > commit.whole
        commit.end_turn(head)
        self._begin()
        if commit is self.open and commit.is_full and not self._failures:
            self._queued.append(commit)
            self.open = Commit(commit.number + 1, commit.last + 1)
            if len(self._queued) >= QUEUED_COMMITS:
                self.failure = StorageUnavailable("the disk does not keep up")

    def _begin(self) -> None:
        """Start to write, if nothing is being written and there is something to write."""
        if self._writing is not None or self._is_pausing:
            return
        if self._queued:
            self._start(self._queued.popleft())
            return
        commit = self.open
        if not commit.is_between_turns:
            return  # the end of the turn begins it
        if commit.is_empty and not (commit.waiting or self._failures):
            return
        if not commit.is_wanted:
            if self._lazy is None:
                self._lazy = self._loop.call_later(LAZY_S, self._begin_lazy)
            return
        self._start(commit)

    def _begin_lazy(self) -> None:
        self._lazy = None
        self.open.is_wanted = True
        self._begin()

    def _start(self, commit: Commit) -> None:
        self._writing = commit
        if commit is self.open:
            self.open = Commit(commit.number + 1, commit.last + 1)
        self._queue.put(commit)

    def commit_now(self) -> None:
        """At start: write what was put, before anything else happens. If it fails, it is tried again."""
        commit, self.open = self.open, Commit(self.open.number + 1, self.open.first)
        pieces, failure = self._try(commit)
        self._on_written(commit, pieces, failure)

    def uncommitted(self) -> list[Run]:
        """Runs that are not committed yet, oldest first."""
        return [run for commit in self._unfinished() for run in commit.runs]

    def find(self, offsets: Iterable[int]) -> dict[int, Run]:
        """Single messages by offset, of those that are not committed yet."""
        commits = self._unfinished()
        found: dict[int, Run] = {}
        for offset in offsets:
            runs = commits[max(bisect_right(commits, offset, key=_first_of) - 1, 0)].runs
            place = bisect_right(runs, offset, key=_offset_of) - 1
            if place >= 0 and offset < runs[place].offset + runs[place].count:
                found[offset] = runs[place].part(offset - runs[place].offset, 1)
        return found

    def _on_written(self, commit: Commit, pieces: Sequence[Piece], failure: Exception | None) -> None:
        """Back on the loop: tell everyone who waits."""
        self._writing = None
        if failure is None:
            self._committed, self.last_offset = commit.number, commit.last
            for piece in pieces:
                self._index.add(piece)
            if self._failures:
                log.info("the log can be written again", offset=commit.last)
            if len(self._queued) * 2 < QUEUED_COMMITS:
                self.failure = None
            self._failures = 0
            _tell(commit.waiting, None)
            self.on_committed()
        else:
            self._on_failure(commit, failure)
        self._begin()

    def _on_failure(self, commit: Commit, failure: Exception) -> None:
        failed = [commit, *self._queued]
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
        for commit in (*self._queued, self.open):
            if failed is not None:  # what came after it must not be there without it
                commit.inherit(failed)
            if not commit.is_empty:
                self._try(commit)
                failed = commit if commit.failure is not None else None
        return None if failed is None else failed.failure

    # In the thread

    def _write_all(self) -> None:
        while (commit := self._queue.get()) is not None:
            pieces, failure = self._try(commit)
            self._loop.call_soon_threadsafe(self._on_written, commit, pieces, failure)

    def _try(self, commit: Commit) -> tuple[list[Piece], Exception | None]:
        try:
            if self._store.needs_reopen:
                self._reopen()
            return self._write(commit), None
        except Exception as error:  # whatever it is, nobody may take it for written
            known = isinstance(error, StorageUnavailable)
            commit.failure = error if known else StorageUnavailable(f"{type(error).__name__}: {error}")
            return [], commit.failure

    def _reopen(self) -> None:
        self._store.reopen()
        if self._store.salvage is not None:
            log.warning("the log was damaged", what=self._store.salvage.note)

    def _write(self, commit: Commit) -> list[Piece]:
        changes, pieces = commit.changes(self._epoch, self._clock.wall_us())
        if not commit.is_empty:
            self._store.check_space()
            self._store.write(changes, sync=self._is_synced)
            self._mark.write(commit.last, commit.number)
        return pieces


def _tell(waiting: Sequence[Settled], failure: Exception | None) -> None:
    """Tell everyone; who makes a mistake about it must not keep it from the others."""
    for callback in waiting:
        try:
            callback(failure)
        except Exception:
            log.exception("the end of a commit could not be told")
