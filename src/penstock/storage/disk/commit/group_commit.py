"""Group commit: all turns since the last commit in one atomic write and one fsync.

The loop collects; one thread writes. A commit starts when the one before has ended, so an idle server
acknowledges at once and a busy one batches. Only whole turns of the loop are committed, because the messages
and state changes of a turn belong together.

When a write fails, its messages are discarded and the waiting callbacks get the error. State changes are
kept, because their sessions continue in memory, and are written with the next successful commit. Until then
nothing is accepted, and the write is retried.

A slow disk makes commits wait in memory, up to a limit of bytes. From half of it on the log is behind, and
core reads no more from publishers; at the limit, messages are refused as if the disk had failed. A failed
write ends the wait of publishers: what they publish is refused, and they have to learn that.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

import structlog
from msgspec import Struct

from penstock.core.ports.log import Settled, Ticket
from penstock.core.ports.turn import Sequencer, Turn, find_message
from penstock.core.runtime.clock import Clock, Handle
from penstock.errors import StorageUnavailable
from penstock.runs import Run
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.commit.pending_commit import PendingCommit
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.rocksdb.store import Store
from penstock.storage.open import Durability

log = structlog.get_logger("penstock.log")

WARN_EVERY_S = 60.0
"""Least time between two warnings of a slow disk."""
LAZY_S = 0.05
"""Delay of changes that no callback waits for, so that they share a commit."""
RETRY_S = (0.1, 0.2, 0.5, 1.0)
"""Retry delays after the first, second, ... failure; the last one repeats."""

_first_of = attrgetter("first")


class Loop(Protocol):
    """The part of the event loop that is used."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Handle: ...


class GroupCommit:
    """The open commit, the queued ones, the one being written, and their callbacks."""

    def __init__(
        self,
        store: Store,
        index: Index,
        mark: DurableMark,
        sequencer: Sequencer,
        loop: Loop,
        clock: Clock,
        *,
        epoch: int,
        number: Ticket,
        durability: Durability,
        limit_bytes: int,
    ) -> None:
        self._store = store
        self._index = index
        self._mark = mark
        self._sequencer = sequencer
        self._loop = loop
        self._clock = clock
        self._epoch = epoch
        self._is_synced = durability == "fsync"
        self._is_awaited = durability != "memory"
        self._committed = number
        self.last_offset = sequencer.head  # the last committed offset
        mark.epoch = epoch
        self.open = PendingCommit(number + 1, sequencer.head + 1)
        self._queued: deque[PendingCommit] = deque()
        self._writing: PendingCommit | None = None
        self.limit_bytes = limit_bytes
        sequencer.room_bytes = limit_bytes // 2
        self._closed_bytes = 0  # of the queued commits and the one being written
        self.is_behind = False
        self._behind: list[Callable[[], None]] = []  # callbacks for its end
        self._next_warning = 0.0
        self._lazy: Handle | None = None
        self._failures = 0
        self._is_pausing = False  # after a failure, until the retry
        self.failure: Exception | None = None
        self._end: StorageUnavailable | None = None  # then nothing is written any more
        self.on_committed: Callable[[], None] = lambda: None
        self._queue: SimpleQueue[PendingCommit | None] = SimpleQueue()
        self._thread = Thread(target=self._write_all, name="commits", daemon=True)
        self._thread.start()

    # From the loop

    def is_committed(self, ticket: Ticket) -> bool:
        """The commit has ended, or `durability` does not wait for it."""
        return ticket <= self._committed or not self._is_awaited

    def when_committed(self, ticket: Ticket, callback: Settled) -> None:
        """Call back when a commit has ended."""
        if ticket <= self._committed:
            callback(None)
            return
        commit = self._find(ticket)
        if commit is None:
            callback(self.failure or StorageUnavailable("the commit has failed"))
            return
        commit.waiting.append(callback)
        commit.is_wanted = True
        self._begin()

    def _find(self, ticket: Ticket) -> PendingCommit | None:
        """The commit of a ticket; None if it has failed."""
        if self.open.number == ticket:
            return self.open
        return next((commit for commit in self._unfinished() if commit.number == ticket), None)

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        """Call back once when the log is not behind any more."""
        self.is_behind = True  # the present turn is counted, too
        self._behind.append(callback)

    @property
    def queued_bytes(self) -> int:
        """Approximate memory of everything that is not committed."""
        return self._closed_bytes + self.open.memory_bytes

    def apply_changes(self, found: dict[bytes, Struct], prefix: bytes) -> None:
        """Apply uncommitted changes to records that were read, with those of the present turn."""
        present = PendingCommit(self.open.number, self.open.first)
        present.add(self._sequencer.turn)
        for commit in (*self._unfinished(), present):
            commit.apply_to(found, prefix)

    def _unfinished(self) -> tuple[PendingCommit, ...]:
        return (*((self._writing,) if self._writing else ()), *self._queued, self.open)

    def commit(self, turn: Turn) -> None:
        """Take a finished turn into the open commit."""
        commit = self.open
        if self.failure is not None:  # only unacknowledged messages are published now
            commit.discard(turn.runs)
        commit.is_wanted = commit.is_wanted or turn.is_urgent or bool(turn.runs)
        commit.add(turn)
        self._begin()
        if commit is self.open and commit.is_full and not self._failures:
            self._queued.append(commit)
            self._close_open()
        self._sequencer.room_bytes = self.limit_bytes // 2 - self.queued_bytes
        if self._sequencer.room_bytes < 0 and not self._failures:
            self._fall_behind()

    def _close_open(self) -> None:
        """Begin the next commit."""
        self._closed_bytes += self.open.memory_bytes
        self.open = PendingCommit(self.open.number + 1, self.open.last + 1)

    def _fall_behind(self) -> None:
        """Hold publishers back; if that does not help, refuse messages."""
        self.is_behind = True
        now = self._clock.monotonic()
        if now >= self._next_warning:
            self._next_warning = now + WARN_EVERY_S
            log.warning("the disk does not keep up, publishers wait", queued_bytes=self.queued_bytes)
        if self.failure is None and self.queued_bytes >= self.limit_bytes:
            self.failure = StorageUnavailable("the disk does not keep up")

    def _catch_up(self) -> None:
        self.is_behind = False
        self._sequencer.room_bytes = self.limit_bytes // 2 - self.queued_bytes
        callbacks, self._behind = self._behind, []
        for callback in callbacks:
            callback()

    def _begin(self) -> None:
        """Start the next write, if none is running and there is something to write."""
        if self._writing is not None or self._is_pausing:
            return
        if self._queued:
            self._start(self._queued.popleft())
            return
        commit = self.open
        if not self._sequencer.turn.is_empty:
            return  # its waiters wait for the present turn; `commit` calls again
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

    def _start(self, commit: PendingCommit) -> None:
        self._writing = commit
        if commit is self.open:
            self._close_open()
        self._queue.put(commit)

    def commit_now(self, turn: Turn) -> None:
        """Write a turn in this thread; only at start. Retried later if it fails."""
        commit, self.open = self.open, PendingCommit(self.open.number + 1, self.open.first)
        commit.add(turn)
        self._closed_bytes += commit.memory_bytes
        pieces, failure = self._try(commit)
        self._on_written(commit, pieces, failure)

    def uncommitted(self) -> list[Run]:
        """Uncommitted runs, oldest first, with those of the present turn."""
        runs = [run for commit in self._unfinished() for run in commit.runs]
        return runs + self._sequencer.turn.runs

    def find(self, offsets: Iterable[int]) -> dict[int, Run]:
        """Single uncommitted messages by offset."""
        commits = self._unfinished()
        found: dict[int, Run] = {}
        for offset in offsets:
            runs = commits[max(bisect_right(commits, offset, key=_first_of) - 1, 0)].runs
            message = find_message(runs if offset <= self.open.last else self._sequencer.turn.runs, offset)
            if message is not None:
                found[offset] = message
        return found

    def _on_written(self, commit: PendingCommit, pieces: Sequence[Piece], failure: Exception | None) -> None:
        """Runs on the loop after a write: update the index, notify the callbacks."""
        self._writing = None
        if failure is None:
            self._committed, self.last_offset = commit.number, commit.last
            self._closed_bytes -= commit.memory_bytes
            for piece in pieces:
                self._index.add(piece)
            if self._failures:
                log.info("the log can be written again", offset=commit.last)
            if self.queued_bytes * 2 < self.limit_bytes:
                self.failure = None
            self._failures = 0
            _notify(commit.waiting, None)
            self.on_committed()
        else:
            self._on_failure(commit, failure)
        self._begin()
        if self.is_behind and (failure is not None or self.queued_bytes * 4 < self.limit_bytes):
            self._catch_up()  # last: what it calls back may fail, and commits go on

    def _on_failure(self, commit: PendingCommit, failure: Exception) -> None:
        failed, present = [commit, *self._queued], self._sequencer.turn.runs
        refused = sum(len(each.runs) for each in (*failed, self.open)) + len(present)
        waiting = [callback for each in (*failed, self.open) for callback in each.waiting]
        is_first = not self._failures
        self._queued.clear()
        self._closed_bytes = 0
        for each in reversed(failed):
            self.open.inherit(each)
        self.open.discard(present)
        self.open.waiting = []
        self.failure = failure
        delay = RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._failures += 1
        self._is_pausing = True
        self._loop.call_later(delay, self._retry)
        if is_first:
            log.error("the log cannot be written", reason=str(failure), runs_refused=refused)
        _notify(waiting, failure)

    def _retry(self) -> None:
        """Write the inherited state changes: their success ends the failure."""
        self._is_pausing = False
        self.open.is_wanted = True
        self._begin()

    def end(self, reason: StorageUnavailable) -> None:
        """Fail this and all later commits: what they would write could not be read again."""
        self._end = reason
        is_between_turns = self._sequencer.turn.is_empty  # else the end of the turn begins the commit
        if self._writing is None and not (self._is_pausing or self._queued) and is_between_turns:
            self._start(self.open)

    @property
    def has_ended(self) -> bool:
        """No commit succeeds any more."""
        return self._end is not None

    @property
    def is_idle(self) -> bool:
        """Nothing is being written, and no callback waits."""
        return self._writing is None and not self._queued and not self.open.waiting

    def close(self) -> Exception | None:
        """Write the rest and stop; return the error if that failed."""
        if self._lazy is not None:
            self._lazy.cancel()
        if not self._sequencer.turn.is_empty:  # the turn ends here
            self.open.add(self._sequencer.end_turn(is_urgent=True))
        self._queue.put(None)
        self._thread.join()
        failed = self._writing if self._writing is not None and self._writing.failure is not None else None
        for commit in (*self._queued, self.open):
            if failed is not None:  # later commits must not be stored without it
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

    def _try(self, commit: PendingCommit) -> tuple[list[Piece], Exception | None]:
        try:
            if self._end is not None:
                raise self._end
            if self._store.needs_reopen:
                self._reopen()
            return self._write(commit), None
        except Exception as error:  # any error means: not written
            known = isinstance(error, StorageUnavailable)
            commit.failure = error if known else StorageUnavailable(f"{type(error).__name__}: {error}")
            return [], commit.failure

    def _reopen(self) -> None:
        self._store.reopen()
        if self._store.salvage is not None:
            log.warning("the log was damaged", what=self._store.salvage.note)

    def _write(self, commit: PendingCommit) -> list[Piece]:
        changes, pieces = commit.changes(self._epoch, self._clock.wall_us())
        if not commit.is_empty:
            self._store.check_space()
            self._store.write(changes, sync=self._is_synced)
            self._mark.write(commit.last, commit.number)
        return pieces


def _notify(waiting: Sequence[Settled], failure: Exception | None) -> None:
    """Call all callbacks; an exception in one does not stop the others."""
    for callback in waiting:
        try:
            callback(failure)
        except Exception:
            log.exception("commit callback failed")
