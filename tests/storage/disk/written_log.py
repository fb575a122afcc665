"""A log as a server writes it, with a record of everything that was acknowledged."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from penstock.model import Door
from penstock.runs import Run, bare_shape
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.pieces.arrow_columns import (
    decode_batch,
    encode_batch,
    summarize,
    to_batch,
    to_runs,
)
from penstock.storage.disk.pieces.frames import (
    Frame,
    decode_frame,
    encode_extents,
    encode_frame,
    encode_summary,
)
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.recovery.survey import EPOCHS
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import (
    COMMIT_KEY,
    INDEX,
    LOG,
    ROWS,
    STATE,
    TOPICS,
    offset_key,
    state_key,
)
from penstock.storage.disk.rocksdb.store import Changes, Store

NOON = 1_700_000_000_000_000
SESSIONS = 20


def run(offset: int, count: int = 1) -> Run:
    """Messages whose payloads can be told from their offsets."""
    slab = b"".join(payload(offset + index) for index in range(count))
    shape = bare_shape(Door.MQTT, 1, retain=False)
    stamps = {"sequence": offset, "offset": offset, "published_at": NOON + offset}
    return Run("a/b", slab, 0, len(slab) // count, count, shape, None, 0.0, 0, "c", **stamps)


def payload(offset: int) -> bytes:
    """Which bytes a message has."""
    return b"%020d" % (offset * 7_919) * 8


class WrittenLog:
    """Commits frames with changes of state, moves the mark, seals: what a server does, in one thread."""

    def __init__(self, path: Path, *, first: int = 1, commit: int = 0, epoch: int = 1) -> None:
        self.path = path
        self.store, self.opening = open_store(path)
        self.mark = DurableMark.open(path)
        self.mark.epoch = self.epoch = epoch
        self.next_offset = first
        self.commits = commit
        self.unsealed: list[Frame] = []
        self.state: dict[bytes, bytes] = {}
        self.put_state(EPOCHS, str(epoch), b"")

    def commit(self, count: int = 5, *, holes: Sequence[tuple[int, int]] = ()) -> Frame:
        """One commit of some messages and one change of a session."""
        first = self.next_offset
        last = first + count - 1
        frame = Frame(self.epoch, first, last, NOON + last, [run(first, count)], tuple(holes))
        changes = Changes()
        changes.put(ROWS, offset_key(first), encode_frame(frame))
        self._put(changes, state_key("sessions", f"s{first % SESSIONS}"), b"%d" % last)
        self._write(changes, last)
        self.next_offset = last + 1
        self.unsealed.append(frame)
        return frame

    def put_state(self, table: str, key: str, value: bytes) -> None:
        """One commit without messages."""
        changes = Changes()
        self._put(changes, state_key(table, key), value)
        self._write(changes, self.next_offset - 1)

    def _put(self, changes: Changes, key: bytes, value: bytes) -> None:
        changes.put(STATE, key, value)
        self.state[key] = value

    def _write(self, changes: Changes, last: int) -> None:
        self.commits += 1
        changes.put(STATE, COMMIT_KEY, offset_key(self.commits))
        self.store.write(changes, sync=True)
        self.mark.write(last, self.commits)

    def seal(self) -> None:
        """Make one batch of everything that is not sealed."""
        frames, self.unsealed = self.unsealed, []
        batch = to_batch(frames, "node")
        stream = encode_batch(batch)
        summary, extents = summarize(frames, batch, len(stream))
        key = offset_key(summary.first)
        changes = Changes()
        changes.put(LOG, key, stream)
        changes.put(INDEX, key, encode_summary(summary))
        changes.put(TOPICS, key, encode_extents(extents))
        changes.delete_range(ROWS, key, offset_key(summary.last + 1))
        self.store.write(changes, sync=False)

    def settle(self) -> None:
        """Move everything into tables, as happens by itself when enough was written."""
        self.store.reopen()

    def leave(self, copy: Path) -> None:
        """Stop, and leave a copy of the files as they would be had the process been killed."""
        shutil.copytree(self.path, copy)
        self.close()

    def close(self) -> None:
        """Stop; everything is in tables then."""
        self.mark.close()
        self.store.close()


def read_piece(store: Store, piece: Piece) -> dict[int, bytes]:
    """The payloads of a piece by offset; empty if it cannot be read, which a reader would be told."""
    try:
        (data,) = store.get(LOG if piece.is_sealed else ROWS, [offset_key(piece.first)])
    except DamagedData:
        return {}
    if data is None:
        return {}
    runs = to_runs(decode_batch(data)) if piece.is_sealed else decode_frame(data).runs
    return {run.offset + index: run.payload(index) for run in runs for index in range(run.count)}
