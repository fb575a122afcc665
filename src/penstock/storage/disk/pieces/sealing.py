"""Sealing: converts committed rows to Arrow batches in the background.

A batch is made of whole frames, oldest first, and replaces them in one atomic write: a crash leaves either
the frames or the batch. Unreadable frames stay, and no batch spans them. Rows are durable before they are
sealed, so a failure only costs disk space and time, and is retried.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from threading import Event, Lock, Thread

import structlog

from penstock.storage.disk.pieces.frames import Summary, decode_summary, encode_summary
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.pieces.sealing_process import (
    Part,
    SealingFailed,
    SealingProcess,
    SealRequest,
    SealResult,
)
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import INDEX, LOG, ROWS, SEQUENCES, TOPICS, offset_key
from penstock.storage.disk.rocksdb.store import Changes, Store

log = structlog.get_logger("penstock.log")

BATCH_BYTES = 4 << 20
"""Limit of rows per batch: a write delays the loop while the batch is copied."""
START_DELAY_S = 1.0
"""Delay after start, unless something is committed before."""
_KEYS_AT_ONCE = 1_000
_FIRST_DELAY_S = 0.5
_LAST_DELAY_S = 60.0
_STOP_PATIENCE_S = 2.0


class Sealer:
    """Seals frames when there are enough for a batch, in a thread and a child process."""

    def __init__(
        self,
        store: Store,
        index: Index,
        node_id: str,
        *,
        messages: int = 10_000,
        on_error: Callable[[Exception], None],
    ) -> None:
        """Prepare; nothing runs before `start`.

        Args:
            messages: messages per batch. An empty frame counts as one.
            on_error: called in the sealer's thread for each damaged frame, and once per failure of the store.
        """
        self._store = store
        self._index = index
        self._node_id = node_id
        self._messages = messages
        self._on_error = on_error
        self._process = SealingProcess()
        self._sealing = Lock()
        self._wake = Event()
        self._stopping = Event()
        self._is_paused = False
        self._is_failing = False
        self._thread: Thread | None = None
        unsealed = index.unsealed(1)
        self._done = unsealed[0].first - 1 if unsealed else index.last_offset  # sealed, or skipped
        self._next_offset = self._next_bytes = self._first_offset = 0  # thresholds for the next check

    def start(self) -> None:
        """Start the thread; frames from an earlier process are sealed soon."""
        self._thread = Thread(target=self._run, name="penstock-sealer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop; waits briefly for a running seal, which may be aborted safely."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_STOP_PATIENCE_S)
            self._process.kill()
            self._thread.join(_STOP_PATIENCE_S)
            self._thread = None
        self._process.close()

    def poke(self) -> None:
        """Check after a commit or trim whether there is enough for a batch. Called on the loop."""
        index = self._index
        if (
            index.last_offset >= self._next_offset
            or index.bytes >= self._next_bytes
            or index.first_offset != self._first_offset
        ):
            self._wake.set()

    def pause(self) -> None:
        """Start and store no batch until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Undo `pause`."""
        self._is_paused = False
        self._wake.set()

    def quiet(self) -> AbstractContextManager[object]:
        """Context in which nothing is sealed, for the removal of frames. Waits for a running seal."""
        return self._sealing

    def seal_now(self) -> int:
        """Seal all readable frames; return the number of messages.

        Raises:
            StorageUnavailable: a batch could not be written.
            SealingFailed: a batch could not be made. In both cases earlier batches stay sealed.
        """
        total = 0
        while (count := self._seal_some()) is not None:
            total += count
        return total

    def _run(self) -> None:
        delay_s = _FIRST_DELAY_S
        self._wake.wait(START_DELAY_S)
        self._wake.set()
        while not self._stopping.is_set():
            self._wake.wait()
            self._wake.clear()
            while self._is_due():
                try:
                    self._seal_some()
                except Exception as error:
                    self._report(error)
                    self._stopping.wait(delay_s)
                    delay_s = min(delay_s * 2, _LAST_DELAY_S)
                else:
                    delay_s = _FIRST_DELAY_S
                    self._is_failing = False

    @property
    def _is_idle(self) -> bool:
        return self._is_paused or self._stopping.is_set()

    def _report(self, error: Exception) -> None:
        if self._stopping.is_set():
            return
        if isinstance(error, SealingFailed):
            log.warning("sealing failed, will retry", error=str(error))
        elif not self._is_failing:
            self._is_failing = True
            self._on_error(error)

    def _is_due(self) -> bool:
        """There is enough for a batch; otherwise set the thresholds for the next check."""
        if self._is_idle:
            return False
        index = self._index
        # Read before the pieces are counted, so that concurrent additions are not missed.
        last_offset, stored_bytes, self._first_offset = index.last_offset, index.bytes, index.first_offset
        pieces = [piece for piece in index.after(self._done, self._messages) if not piece.is_sealed]
        missing = self._messages - sum(max(piece.count, 1) for piece in pieces)
        missing_bytes = BATCH_BYTES - sum(piece.bytes for piece in pieces)
        # At most one message per offset. At least a tenth, so that checks do not become frequent.
        self._next_offset = last_offset + max(missing, self._messages // 10)
        self._next_bytes = stored_bytes + max(missing_bytes, BATCH_BYTES // 10)
        return missing <= 0 or missing_bytes <= 0

    def _seal_some(self) -> int | None:
        """Seal one batch of the oldest frames; return its messages, or None if there are no frames."""
        with self._sealing:
            pieces = [] if self._is_idle else list(self._choose())
            if not pieces:
                return None
            parts = self._read(pieces)
            sealed = self._process.seal(SealRequest(self._node_id, parts)) if parts else None
            if self._is_paused:
                return None
            if sealed is None:
                if not self._find_sealed(pieces[0]):
                    self._skip(pieces[0], "missing or unreadable")
                return 0
            if sealed.summary is not None:
                self._replace_rows(sealed, sealed.summary)
            if sealed.used < len(parts):
                self._skip(pieces[sealed.used], sealed.damage)
            return sealed.summary.count if sealed.summary is not None else 0

    def _choose(self) -> Iterator[Piece]:
        """The oldest frames for one batch. They are contiguous, so no damage lies between them."""
        missing, missing_bytes, end = self._messages, BATCH_BYTES, None
        for piece in self._index.after(self._done, self._messages):
            if piece.is_sealed and end is None:
                continue
            if piece.is_sealed or missing <= 0 or missing_bytes <= 0 or end not in {None, piece.first - 1}:
                return
            yield piece
            missing -= max(piece.count, 1)
            missing_bytes -= piece.bytes
            end = piece.last

    def _read(self, pieces: Sequence[Piece]) -> list[Part]:
        """Rows of these pieces, up to the first unreadable one."""
        keys = [offset_key(piece.first) for piece in pieces]
        try:
            rows = self._store.get(ROWS, keys)
        except DamagedData as error:
            rows = [error.found.get(key) for key in keys]
        parts: list[Part] = []
        for piece, row in zip(pieces, rows, strict=True):
            if row is None:
                break
            parts.append(Part(piece.first, piece.last, row))
        return parts

    def _replace_rows(self, sealed: SealResult, summary: Summary) -> None:
        self._store.check_space()
        for start in range(0, len(sealed.places), _KEYS_AT_ONCE):  # harmless without their batch
            changes = Changes()
            for key, place in sealed.places[start : start + _KEYS_AT_ONCE]:
                changes.put(SEQUENCES, key, place)
            self._store.write(changes, sync=False)
        changes = Changes()
        key = offset_key(summary.first)
        if sealed.stream:
            changes.put(LOG, key, sealed.stream)
        changes.put(INDEX, key, encode_summary(summary))
        changes.put(TOPICS, key, sealed.topics)
        changes.delete_range(ROWS, key, offset_key(summary.last + 1))
        self._store.write(changes, sync=False)  # after a crash the rows may be back
        self._note(summary)

    def _find_sealed(self, piece: Piece) -> bool:
        """These rows were sealed after all, by a write that reported a failure."""
        try:
            entry = self._store.last_before(INDEX, offset_key(piece.first))
        except DamagedData:
            return False
        summary = None if entry is None else decode_summary(entry[1])
        if summary is None or summary.last < piece.first:
            return False
        self._note(summary)
        return True

    def _note(self, summary: Summary) -> None:
        self._index.replace(Piece.of_summary(summary))
        self._done = summary.last

    def _skip(self, piece: Piece, words: str) -> None:
        """Leave a damaged frame as it is, and continue after it."""
        self._done = piece.last
        self._on_error(DamagedData(ROWS, offset_key(piece.first), words))
