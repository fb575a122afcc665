"""Commits of stages: decided once, published in slices, finished whatever happens in between.

A commit is decided by one record. Then its chunks are published in order, some in each turn of the loop, and
how far it has got is noted in the same turn: both are in the same commit of the log, so after a crash none is
missing and none comes twice. One slice at a time is on its way to the disk. If it could not be stored the log
has nothing of it: the note of it is taken back, and it is published again when the log is well. What of it
was delivered at QoS 0 or 1 has left by then, as always, and leaves again. A commit that a crash has cut short
goes on at the next start by itself.

Rights were asked for when it was decided: nothing that happens to them later leaves a commit half done.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from operator import itemgetter

import structlog
from msgspec import Struct
from msgspec.structs import replace

from penstock.core.callers import CallerSink
from penstock.core.chunks import runs_of, weight_of
from penstock.core.decided import Commit, Key, Numbered, Released, Slice, digest_of
from penstock.core.identity import Identity
from penstock.core.node import Node
from penstock.core.ports import Position, Settled
from penstock.core.publishing import Publishing
from penstock.core.records import (
    CHUNKS,
    DECIDED,
    PROGRESS,
    RELEASED,
    ChunkRecord,
    DecidedRecord,
    ProgressRecord,
    ReleasedRecord,
)
from penstock.core.remembered import Remembered
from penstock.core.sessions import Session
from penstock.errors import Conflict, PenstockError, QuotaExceeded, ShuttingDown, StorageUnavailable
from penstock.model import Door, Run

log = structlog.get_logger("penstock.stage")

RETRY_S = 0.2
"""How long to wait before a slice that could not be published is tried again."""
_GOES_ON = "the commit is decided and goes on by itself: ask again with the same key"


class Releasing:
    """Publishes what was staged, and remembers what it has published."""

    def __init__(self, node: Node, publishing: Publishing) -> None:
        self._node = node
        self._publishing = publishing
        self._numbers = count(1)
        self._commits: dict[Key, Commit] = {}  # by whose turn it is
        self._remembered = Remembered(node)
        self._is_busy = False  # a slice is on its way to the disk
        self._is_waiting = False  # for its time to try again
        self.bytes = 0  # decided and not published
        self.reap = self._remembered.reap

    def next_number(self) -> int:
        """A number for a record that none has that is still here."""
        return next(self._numbers)

    def check_open(self) -> None:
        """Refuse everything while nothing can be taken.

        Raises:
            ShuttingDown: the server is about to stop.
            StorageUnavailable: nothing can be stored at present.
        """
        if self._publishing.is_stopping:
            raise ShuttingDown("the server is about to stop")
        if self._node.log.failure is not None:
            raise StorageUnavailable(str(self._node.log.failure))

    def when_stored(self, callback: Settled) -> None:
        """Call back when what this turn leaves is safe: after its commit, or after its flush."""
        if self._node.recording.is_on:
            self._node.recording.when_stored(callback)
        else:
            self._node.tick.after(lambda: callback(None))

    # Asking

    def join(self, owner: str | None, key: str, ids: Sequence[str] | None, done: Released) -> bool:
        """Wait for a commit of this key that is decided already, or answer at once; False if there is none.

        Args:
            ids: the stages it has to be of; None for whichever.

        Raises:
            Conflict: the key was used for other stages.
        """
        commit, finished = self._commits.get((owner, key)), self._remembered.find((owner, key))
        record = finished if commit is None else commit.record
        if record is None:
            return False
        if ids is not None and record.digest != digest_of(ids):
            raise Conflict(f"the key {key} was used to commit other stages")
        if commit is not None:
            self.check_open()
            commit.waiting.append((done, True))
        elif finished is not None:
            done(finished, True)
        return True

    def decide(
        self,
        owner: str | None,
        identity: Identity,
        key: str,
        ids: Sequence[str],
        chunks: Sequence[Numbered],
        done: Released,
    ) -> None:
        """Publish chunks from now on; there is no way back."""
        digest, rows = digest_of(ids), sum(chunk.rows for _, chunk in chunks)
        user, client_id, is_certified = identity.user, identity.client_id, identity.is_certified
        numbers = tuple(number for number, _ in chunks)
        record = DecidedRecord(owner, key, digest, user, client_id, is_certified, rows, numbers)
        commit = self._add(self.next_number(), record, chunks)
        commit.waiting.append((done, False))
        if self._node.recording.is_on:
            self._node.state.put(DECIDED, str(commit.number), record)
            self._node.recording.hurry()
        self._go_on()

    def _add(self, number: int, record: DecidedRecord, chunks: Sequence[Numbered]) -> Commit:
        sender = Session(Identity(record.user, record.client_id, record.is_certified), Door.WEB)
        sender.sink = CallerSink(self._node.scheduler)
        commit = Commit(number, record, chunks, sender)
        self._commits[commit.key] = commit
        self.bytes += commit.bytes
        return commit

    # Publishing

    def _go_on(self) -> None:
        """Publish the next slice of whoever's turn it is, unless one is on its way."""
        while not (self._is_busy or self._is_waiting or self._publishing.is_stopping):
            commit = self._next_commit()
            if commit is None:
                return
            self._commits[commit.key] = self._commits.pop(
                commit.key
            )  # the others have theirs before it again
            try:
                self.check_open()
                chunks = commit.next_slice()
                commit.sender.topics = {
                    name: self._node.topics.make(name) for _, chunk in chunks for name in chunk.topics
                }
            except StorageUnavailable:
                self._try_later()
            except QuotaExceeded as error:
                self._wait_for_room(commit, error)
            else:
                self._publish(commit, chunks)

    def _next_commit(self) -> Commit | None:
        """Whose turn it is; those who have to wait let the others go first."""
        for commit in self._commits.values():
            if commit.is_held:
                continue
            if commit.sender.held_by is None:
                return commit
            commit.is_held = True
            self._node.callers.when_free(commit.sender, partial(self._on_free, commit))
        return None

    def _on_free(self, commit: Commit) -> None:
        commit.is_held = False
        self._node.scheduler.call_soon(self._go_on)

    def _wait_for_room(self, commit: Commit, error: QuotaExceeded) -> None:
        """There are too many topics: until some are forgotten a commit goes no further, and nobody waits."""
        commit.is_held = True
        commit.tell(QuotaExceeded(f"{error}; {_GOES_ON}"))
        self._node.scheduler.call_later(RETRY_S, partial(self._on_free, commit))

    def _publish(self, commit: Commit, chunks: list[Numbered]) -> None:
        first = self._position()
        runs = [run for _, chunk in chunks for run in runs_of(chunk)]
        self._publishing.publish_all(runs, commit.sender, _cannot_be)
        if commit.progress is not None:
            first, done = commit.progress.first, commit.progress.done + len(chunks)
        else:
            done = len(chunks)
        progress = ProgressRecord(done, first, self._position())
        is_last = len(chunks) == len(commit.chunks)
        part = Slice(chunks, progress, self._finish(commit, progress) if is_last else None)
        self._note(commit, part)
        self._is_busy = True
        self.when_stored(partial(self._settle, commit, part))

    def _position(self) -> Position:
        return Position(self._node.log.log_id, self._node.log.epoch, self._node.history.head)

    def _finish(self, commit: Commit, progress: ProgressRecord) -> ReleasedRecord:
        decided, wall_us = commit.record, self._node.clock.wall_us()
        return ReleasedRecord(
            decided.owner, decided.key, decided.digest, decided.rows, progress.first, progress.last, wall_us
        )

    def _note(self, commit: Commit, part: Slice) -> None:
        """Note how far a commit has got, in the turn that takes it there."""
        state, number = self._node.state, str(commit.number)
        if not self._node.recording.is_on:
            return
        if part.finished is None:
            state.put(PROGRESS, number, part.progress)
        else:
            state.put(RELEASED, number, part.finished)
            state.delete(DECIDED, number)
            state.delete(PROGRESS, number)

    def _take_back(self, commit: Commit, part: Slice) -> None:
        """A slice was not stored, its messages are gone: what was noted of it must not be stored either."""
        state, number = self._node.state, str(commit.number)
        if part.finished is not None:
            state.delete(RELEASED, number)
            state.put(DECIDED, number, commit.record)
        if commit.progress is None:
            state.delete(PROGRESS, number)
        else:
            state.put(PROGRESS, number, commit.progress)
        self._node.recording.hurry()

    def _settle(self, commit: Commit, part: Slice, failure: Exception | None) -> None:
        """A slice is safe, or was never published."""
        self._is_busy = False
        if failure is not None:
            self._take_back(commit, part)
            commit.tell(StorageUnavailable(f"{failure}; {_GOES_ON}"))
            self._try_later()
            return
        commit.progress = part.progress
        for number, chunk in part.chunks:
            commit.chunks.popleft()
            self.bytes -= weight_of(chunk)
            if self._node.recording.is_on:
                self._node.recording.forget_record(CHUNKS, str(number))
        if part.finished is not None:
            del self._commits[commit.key]
            self._remembered.add(commit.number, part.finished)
            commit.tell(part.finished)
        self._go_on()

    def _try_later(self) -> None:
        def try_again() -> None:
            self._is_waiting = False
            self._go_on()

        self._is_waiting = True
        self._node.scheduler.call_later(RETRY_S, try_again)

    def stop(self) -> None:
        """The server is about to stop: nobody waits for what goes on after the next start."""
        for commit in self._commits.values():
            commit.tell(ShuttingDown("the server is about to stop: ask again with the same key"))

    # At start

    def restore(self, chunks: dict[int, ChunkRecord], numbers: list[int]) -> None:
        """Go on with what the last server has not finished, and take its chunks; remember what it has.

        Args:
            numbers: those of records elsewhere, which are not given again.
        """
        state, numbers = self._node.state, [0, *chunks, *numbers]
        progress = {int(number): record for number, record in state.scan(PROGRESS)}
        for number, record in _by_number(state.scan(DECIDED)):
            assert isinstance(record, DecidedRecord)
            numbers += number, *record.chunks
            self._resume(number, record, progress.get(number), chunks)
        numbers += self._remembered.restore()
        self._numbers = count(max(numbers) + 1)
        if self._commits:
            self._node.scheduler.call_soon(self._go_on)

    def _resume(
        self, number: int, record: DecidedRecord, progress: Struct | None, chunks: dict[int, ChunkRecord]
    ) -> None:
        assert progress is None or isinstance(progress, ProgressRecord)
        left = record.chunks[progress.done if progress is not None else 0 :]
        found = [(each, chunks.pop(each)) for each in left if each in chunks]
        if len(found) < len(left):  # the disk was damaged
            log.error("staged rows are lost", key=record.key, chunks=len(left) - len(found))
            record = replace(record, chunks=tuple(each for each, _ in found))
            progress = progress and replace(progress, done=0)
            self._node.state.put(DECIDED, str(number), record)
            if progress is not None:
                self._node.state.put(PROGRESS, str(number), progress)
            self._node.recording.hurry()
        self._add(number, record, found).progress = progress


def _by_number(records: Iterator[tuple[str, Struct]]) -> list[tuple[int, Struct]]:
    return sorted(((int(number), record) for number, record in records), key=itemgetter(0))


def _cannot_be(run: Run, error: PenstockError) -> None:
    raise AssertionError(f"what is decided was refused: {error}")
