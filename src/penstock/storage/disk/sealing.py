"""Turns committed rows into Arrow batches, in the background and a little at a time.

A batch is made of whole frames, oldest first, and takes their place in one atomic write: a crash leaves the
frames or the batch, never both and never neither. What cannot be read is left where it is, and no batch
reaches across it. Rows are safe before they are sealed, so whatever goes wrong here costs disk space and time
only: it is tried again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from threading import Event, Lock, Thread

import structlog

from penstock.storage.disk.failures import DamagedData
from penstock.storage.disk.frames import Summary, decode_summary, encode_summary
from penstock.storage.disk.index import Index, Piece
from penstock.storage.disk.layout import INDEX, LOG, ROWS, SEQUENCES, TOPICS, offset_key
from penstock.storage.disk.store import Changes, Store
from penstock.storage.disk.worker import Order, Part, Sealed, Worker, WorkerFailed

log = structlog.get_logger("penstock.log")

BATCH_BYTES = 4 << 20
"""Of rows. A write stops the loop for as long as it takes to copy the batch, so there is a limit."""
START_DELAY_S = 1.0
"""How long a server that comes up is left alone, unless it commits something before."""
_KEYS_AT_ONCE = 1_000
_FIRST_DELAY_S = 0.5
_LAST_DELAY_S = 60.0
_STOP_PATIENCE_S = 2.0


class Sealer:
    """Seals the frames of a log whenever there are enough of them, in a thread and a process of its own."""

    def __init__(
        self,
        store: Store,
        index: Index,
        node_id: str,
        *,
        messages: int = 10_000,
        on_error: Callable[[Exception], None],
    ) -> None:
        """Look at what is there; nothing runs before `start`.

        Args:
            messages: how many make a batch. A frame without any counts for one, because it takes a place too.
            on_error: told of each damaged frame, and once of what stops all sealing; in the sealer's thread.
        """
        self._store = store
        self._index = index
        self._node_id = node_id
        self._messages = messages
        self._on_error = on_error
        self._worker = Worker()
        self._sealing = Lock()
        self._wake = Event()
        self._stopping = Event()
        self._is_paused = False
        self._is_failing = False
        self._thread: Thread | None = None
        unsealed = index.unsealed(1)
        self._done = unsealed[0].first - 1 if unsealed else index.last_offset  # sealed, or given up
        self._next_offset = self._next_bytes = self._first_offset = 0  # when to look again

    def start(self) -> None:
        """Begin; what is left from the last time is sealed soon."""
        self._thread = Thread(target=self._run, name="penstock-sealer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the seal at hand, but not for long: what is not sealed is as safe."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_STOP_PATIENCE_S)
            self._worker.kill()
            self._thread.join(_STOP_PATIENCE_S)
            self._thread = None
        self._worker.close()

    def poke(self) -> None:
        """Something was committed or trimmed: see whether there is enough to be sealed. From the loop."""
        index = self._index
        if (
            index.last_offset >= self._next_offset
            or index.bytes >= self._next_bytes
            or index.first_offset != self._first_offset
        ):
            self._wake.set()

    def pause(self) -> None:
        """Begin no batch and store none until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Undo `pause`."""
        self._is_paused = False
        self._wake.set()

    def quiet(self) -> AbstractContextManager[object]:
        """Nothing is sealed inside: for who removes frames. Entering waits for the seal at hand."""
        return self._sealing

    def seal_now(self) -> int:
        """Seal every frame that can be, and tell how many messages that were.

        Raises:
            StorageUnavailable: the batch could not be written.
            WorkerFailed: it could not be made. In both cases what was sealed so far is.
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
                    self._tell(error)
                    self._stopping.wait(delay_s)
                    delay_s = min(delay_s * 2, _LAST_DELAY_S)
                else:
                    delay_s = _FIRST_DELAY_S
                    self._is_failing = False

    @property
    def _is_idle(self) -> bool:
        return self._is_paused or self._stopping.is_set()

    def _tell(self, error: Exception) -> None:
        if self._stopping.is_set():
            return
        if isinstance(error, WorkerFailed):
            log.warning("sealing failed, it is tried again", error=str(error))
        elif not self._is_failing:
            self._is_failing = True
            self._on_error(error)

    def _is_due(self) -> bool:
        """Whether there is enough for a batch; if not, notes when it is worth asking again."""
        if self._is_idle:
            return False
        index = self._index
        # Read before the pieces are counted, so that what is added meanwhile is not overlooked.
        last_offset, stored_bytes, self._first_offset = index.last_offset, index.bytes, index.first_offset
        pieces = [piece for piece in index.after(self._done, self._messages) if not piece.is_sealed]
        missing = self._messages - sum(max(piece.count, 1) for piece in pieces)
        missing_bytes = BATCH_BYTES - sum(piece.bytes for piece in pieces)
        # There are at most as many messages as offsets. A tenth, so that we do not look more and more often.
        self._next_offset = last_offset + max(missing, self._messages // 10)
        self._next_bytes = stored_bytes + max(missing_bytes, BATCH_BYTES // 10)
        return missing <= 0 or missing_bytes <= 0

    def _seal_some(self) -> int | None:
        """Seal the oldest frames that make a batch: how many messages they had, or None if there are none."""
        with self._sealing:
            pieces = [] if self._is_idle else list(self._choose())
            if not pieces:
                return None
            parts = self._read(pieces)
            sealed = self._worker.seal(Order(self._node_id, parts)) if parts else None
            if self._is_paused:
                return None
            if sealed is None:
                if not self._find_sealed(pieces[0]):
                    self._give_up(pieces[0], "it is missing or cannot be read")
                return 0
            if sealed.summary is not None:
                self._replace_rows(sealed, sealed.summary)
            if sealed.used < len(parts):
                self._give_up(pieces[sealed.used], sealed.damage)
            return sealed.summary.count if sealed.summary is not None else 0

    def _choose(self) -> Iterator[Piece]:
        """The oldest frames, as many as make a batch. They meet, so nothing damaged lies between them."""
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
        """The rows of these pieces, up to the first that cannot be read."""
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

    def _replace_rows(self, sealed: Sealed, summary: Summary) -> None:
        self._store.check_space()
        for start in range(0, len(sealed.places), _KEYS_AT_ONCE):  # they do no harm without their batch
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
        self._store.write(changes, sync=False)  # a crash may undo it: then the rows are back
        self._note(summary)

    def _find_sealed(self, piece: Piece) -> bool:
        """Whether these rows were sealed after all, by a write that was said to have failed."""
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

    def _give_up(self, piece: Piece, words: str) -> None:
        """Leave a frame as it is, and go on after it."""
        self._done = piece.last
        self._on_error(DamagedData(ROWS, offset_key(piece.first), words))
