"""Commit of stages: decided once, published in slices, finished after any crash.

One record decides a commit. Its chunks are then published in order, some in each turn of the loop, and the
progress is recorded in the same commit of the log: after a crash no message is missing and none is repeated.
One slice at a time is on its way to the disk. A slice that cannot be stored is rolled back and published
again once the log recovers; what it delivered at QoS 0 or 1 is then delivered again. Recovery continues an
interrupted commit by itself.

Rights are checked when a commit is decided; a later change does not leave it half done.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import count
from operator import itemgetter

import structlog
from msgspec import Struct
from msgspec.structs import replace

from penstock.common.cursor import Position
from penstock.core.access.identity import Identity
from penstock.core.durability.records import (
    CHUNKS,
    DECIDED,
    PROGRESS,
    RELEASED,
    ChunkRecord,
    DecidedRecord,
    ProgressRecord,
    ReleasedRecord,
)
from penstock.core.node import Node
from penstock.core.ports.log import Settled
from penstock.core.publishing.publish import Publisher
from penstock.core.publishing.request_senders import RequestConnection
from penstock.core.sessions.session import Session
from penstock.core.staging.commit_keys import CommitKeys, Key
from penstock.core.staging.packing import runs_of, weight_of
from penstock.errors import Conflict, PenstockError, QuotaExceeded, ShuttingDown, StorageUnavailable
from penstock.model import Door
from penstock.runs import Run

SLICE_ROWS, SLICE_TOPICS, SLICE_BYTES = 2_000, 300, 1024 * 1024
"""A slice takes no further chunk after this much."""

Numbered = tuple[int, ChunkRecord]
"""A chunk, and the number of its record."""
Released = Callable[[ReleasedRecord | PenstockError, bool], None]
"""Called when everything is published and safe, or with an error; and whether this was asked for before."""


class Commit:
    """A commit that is decided and not finished."""

    def __init__(
        self, number: int, record: DecidedRecord, chunks: Iterable[Numbered], sender: Session
    ) -> None:
        self.number = number
        self.record = record
        self.chunks = deque(chunks)  # not published yet
        self.bytes = sum(weight_of(chunk) for _, chunk in self.chunks)
        self.progress: ProgressRecord | None = None
        self.sender = sender
        self.waiting: list[tuple[Released, bool]] = []
        self.is_blocked = False  # by a subscriber under `block`, or by too many topics

    @property
    def key(self) -> Key:
        """Key of the commit."""
        return self.record.owner, self.record.key

    def next_slice(self) -> list[Numbered]:
        """The chunks that are published together next; they stay until that is safe."""
        taken: list[Numbered] = []
        rows = topics = size = 0
        for number, chunk in self.chunks:
            rows, topics, size = rows + chunk.rows, topics + len(chunk.topics), size + len(chunk.data)
            if taken and (rows > SLICE_ROWS or topics > SLICE_TOPICS or size > SLICE_BYTES):
                break
            taken.append((number, chunk))
        return taken

    def notify(self, outcome: ReleasedRecord | PenstockError) -> None:
        """Report the result to every waiter."""
        waiting, self.waiting = self.waiting, []
        for done, is_repeated in waiting:
            done(outcome, is_repeated)


class Slice(Struct, frozen=True):
    """Slice that was published in one turn, with the progress of its commit."""

    chunks: list[Numbered]
    progress: ProgressRecord
    finished: ReleasedRecord | None
    """If it was the last one."""


def digest_of(ids: Iterable[str]) -> bytes:
    """Digest of stage names in order. No name has a line break."""
    return blake2b("\n".join(ids).encode(), digest_size=16).digest()


log = structlog.get_logger("penstock.stage")

RETRY_S = 0.2
"""Delay before a slice that could not be published is retried."""
_CONTINUES = "the commit is decided and continues by itself: ask again with the same key"


class StageCommits:
    """Publishes what was staged, and remembers what it has published."""

    def __init__(self, node: Node, publishing: Publisher) -> None:
        self._node = node
        self._publishing = publishing
        self._numbers = count(1)
        self._commits: dict[Key, Commit] = {}  # by whose turn it is
        self._remembered = CommitKeys(node)
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
        if self._node.log.is_durable:
            self._node.recorder.when_stored(callback)
        else:
            self._node.tick.after(lambda: callback(None))

    # Asking

    def join(self, owner: str | None, key: str, ids: Sequence[str] | None, done: Released) -> bool:
        """Wait for a decided commit of this key, or return its result; False if there is none.

        Args:
            ids: the stages it has to be of; None for any.

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
        self._node.recorder.put(DECIDED, str(commit.number), record, is_urgent=True)
        self._continue()

    def _add(self, number: int, record: DecidedRecord, chunks: Sequence[Numbered]) -> Commit:
        sender = Session(Identity(record.user, record.client_id, record.is_certified), Door.WEB)
        sender.connection = RequestConnection(self._node.scheduler)
        commit = Commit(number, record, chunks, sender)
        self._commits[commit.key] = commit
        self.bytes += commit.bytes
        return commit

    # Publishing

    def _continue(self) -> None:
        """Publish the next slice of the next commit, unless one is in progress."""
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
        """Return the next commit; commits that have to wait let others go first."""
        for commit in self._commits.values():
            if commit.is_blocked:
                continue
            if commit.sender.blocked_by is None:
                return commit
            commit.is_blocked = True
            self._node.request_senders.when_unblocked(commit.sender, partial(self._on_free, commit))
        return None

    def _on_free(self, commit: Commit) -> None:
        commit.is_blocked = False
        self._node.scheduler.call_soon(self._continue)

    def _wait_for_room(self, commit: Commit, error: QuotaExceeded) -> None:
        """Pause a commit while there are too many topics, and release its waiters."""
        commit.is_blocked = True
        commit.notify(QuotaExceeded(f"{error}; {_CONTINUES}"))
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
        """Record the progress of a commit, in the same turn as its messages."""
        recorder, number = self._node.recorder, str(commit.number)
        if part.finished is None:
            recorder.put(PROGRESS, number, part.progress)
        else:
            recorder.put(RELEASED, number, part.finished)
            recorder.delete(DECIDED, number)
            recorder.delete(PROGRESS, number)

    def _roll_back(self, commit: Commit, part: Slice) -> None:
        """Undo the recorded progress of a slice that was not stored."""
        recorder, number = self._node.recorder, str(commit.number)
        if part.finished is not None:
            recorder.delete(RELEASED, number)
            recorder.put(DECIDED, number, commit.record)
        if commit.progress is None:
            recorder.delete(PROGRESS, number)
        else:
            recorder.put(PROGRESS, number, commit.progress)
        recorder.hurry()

    def _settle(self, commit: Commit, part: Slice, failure: Exception | None) -> None:
        """A slice is safe, or was never published."""
        self._is_busy = False
        if failure is not None:
            self._roll_back(commit, part)
            commit.notify(StorageUnavailable(f"{failure}; {_CONTINUES}"))
            self._try_later()
            return
        commit.progress = part.progress
        for number, chunk in part.chunks:
            commit.chunks.popleft()
            self.bytes -= weight_of(chunk)
            self._node.recorder.delete(CHUNKS, str(number))
        if part.finished is not None:
            del self._commits[commit.key]
            self._remembered.add(commit.number, part.finished)
            commit.notify(part.finished)
        self._continue()

    def _try_later(self) -> None:
        def try_again() -> None:
            self._is_waiting = False
            self._continue()

        self._is_waiting = True
        self._node.scheduler.call_later(RETRY_S, try_again)

    def stop(self) -> None:
        """Release all waiters: the server stops, and the next start continues."""
        for commit in self._commits.values():
            commit.notify(ShuttingDown("the server is about to stop: ask again with the same key"))

    # At start

    def restore(self, chunks: dict[int, ChunkRecord], numbers: list[int]) -> None:
        """Recover unfinished commits with their chunks, and the keys of finished ones.

        Args:
            numbers: record numbers in use elsewhere, which are not given again.
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
            self._node.scheduler.call_soon(self._continue)

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
            self._node.recorder.put(DECIDED, str(number), record, is_urgent=True)
            if progress is not None:
                self._node.recorder.put(PROGRESS, str(number), progress)
        self._add(number, record, found).progress = progress


def _by_number(records: Iterator[tuple[str, Struct]]) -> list[tuple[int, Struct]]:
    return sorted(((int(number), record) for number, record in records), key=itemgetter(0))


def _cannot_be(run: Run, error: PenstockError) -> None:
    raise AssertionError(f"what is decided was refused: {error}")
