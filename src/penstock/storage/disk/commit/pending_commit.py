"""Pending commit: messages and state changes that are written in one atomic write.

Filled on the loop, then handed to the writing thread and not changed again. If the write fails, the next
commit inherits its state changes.
"""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct, msgpack

from penstock.core.durability.records import CHUNKS, RETAINED, ChunkRecord, RetainedRecord
from penstock.core.ports.log import Settled, Ticket
from penstock.core.ports.turn import Turn
from penstock.runs import Run
from penstock.storage.disk.pieces.frames import Frame, Range, encode_frame, join_ranges
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.rocksdb.layout import COMMIT_KEY, ROWS, STATE, offset_key, record_key
from penstock.storage.disk.rocksdb.store import Changes

T = TypeVar("T")

FRAME_BYTES = 1024 * 1024
"""Approximate size of one stored value; a commit may have several."""
COMMIT_RUNS, COMMIT_BYTES = 5_000, 1024 * 1024
"""Limits after which a commit accepts no further turn: a write delays the loop."""
MOST_HOLES = 1_000
"""Most ranges of lost offsets in one commit; beyond that they are merged."""
RUN_BYTES = 100
"""Overhead of a stored run beside its bytes."""
OBJECT_BYTES = 300
"""Overhead in memory of a run or a record beside its bytes."""

_WITH_DATA = (RETAINED, CHUNKS)
"""Tables whose records may be large."""
_encoder = msgpack.Encoder()


class PendingCommit:
    """One atomic write: messages and state changes of whole turns."""

    def __init__(self, number: Ticket, first: int) -> None:
        self.number = number
        self.first = first  # follows the last offset of the commit before
        self.last = first - 1
        self.runs: list[Run] = []
        self.holes: list[Range] = []
        self.state: dict[bytes, Struct | None] = {}
        self.cuts: dict[bytes, bytes] = {}
        self.waiting: list[Settled] = []
        self.bytes = 0  # size of the runs, and of the values in records
        self.is_wanted = False  # a callback waits for it
        self.is_heir = False  # a failed write may have stored a part of it
        self.failure: Exception | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing to write."""
        return not (self.runs or self.state or self.cuts or self.last >= self.first)

    @property
    def is_full(self) -> bool:
        """The commit accepts no further turn."""
        return len(self.runs) >= COMMIT_RUNS or self.bytes >= COMMIT_BYTES

    @property
    def memory_bytes(self) -> int:
        """Approximate memory that its runs and records take."""
        return self.bytes + OBJECT_BYTES * (len(self.runs) + len(self.state))

    def add(self, turn: Turn) -> None:
        """Take a finished turn."""
        self.runs += turn.runs
        self.bytes += sum([len(run.slab) for run in turn.runs])
        for table, before in turn.cuts.items():
            self._cut(record_key(table, 0), record_key(table, before))
        for (table, key), record in turn.puts.items():
            self.state[record_key(table, key)] = record
            if table in _WITH_DATA:
                assert isinstance(record, RetainedRecord | ChunkRecord)
                self.bytes += len(record.data)
        for table, key in turn.deletes:
            self.state[record_key(table, key)] = None
        self.last = max(self.last, turn.head)

    def discard(self, runs: list[Run]) -> None:
        """Empty a list of messages of this commit or of the turn after it; their offsets become holes."""
        if runs:
            places = [(run.offset, run.last_offset) for run in runs]
            self.holes = _merge_holes([*self.holes, *places])
            runs.clear()

    def _discard_runs(self) -> None:
        self.discard(self.runs)
        self.bytes = 0

    def apply_to(self, found: dict[bytes, Struct], prefix: bytes) -> None:
        """Apply the changes of keys with a prefix to records that were read."""
        for start, stop in self.cuts.items():
            remove_between(found, start, stop)
        for key, value in self.state.items():
            if not key.startswith(prefix):
                continue
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value

    def _cut(self, start: bytes, stop: bytes) -> None:
        """Delete a range of stored keys, and pending puts in it."""
        remove_between(self.state, start, stop)  # cuts are applied before puts
        self.cuts[start] = max(stop, self.cuts.get(start, stop))

    def inherit(self, failed: "PendingCommit") -> None:
        """Take over the state changes of a failed commit, and the offsets of its messages as holes."""
        failed._discard_runs()
        self._discard_runs()
        for start, stop in self.cuts.items():
            failed._cut(start, stop)
        self.state = failed.state | self.state
        self.cuts = failed.cuts
        self.holes = _merge_holes([*failed.holes, *self.holes])
        self.first = failed.first
        self.last = max(self.last, failed.last)
        self.is_heir = True

    def changes(self, epoch: int, committed_at: int) -> tuple[Changes, list[Piece]]:
        """The write batch, and the pieces to add to the index after the write."""
        changes = Changes()
        pieces: list[Piece] = []
        for frame in self._frames(epoch, committed_at):
            data = encode_frame(frame)
            changes.put(ROWS, offset_key(frame.first), data)
            pieces.append(Piece.of_frame(frame, len(data)))
        if self.is_heir and pieces:
            rest = offset_key(pieces[-1].first + 1), offset_key(self.last + 1)
            changes.delete_range(ROWS, *rest)  # a failed write may have stored frames there
        for start, stop in self.cuts.items():
            changes.delete_range(STATE, start, stop)
        for key, value in self.state.items():
            if value is None:
                changes.delete(STATE, key)
            else:
                changes.put(STATE, key, _encoder.encode(value))
        changes.put(STATE, COMMIT_KEY, offset_key(self.number))
        return changes, pieces

    def _frames(self, epoch: int, committed_at: int) -> list[Frame]:
        """The runs in frames of limited size."""
        if self.last < self.first:
            return []
        frames: list[Frame] = []
        first, size, start, holes = self.first, 0, 0, tuple(self.holes)  # holes precede the runs
        is_small = self.bytes + len(self.runs) * RUN_BYTES < FRAME_BYTES
        for position, run in enumerate(() if is_small else self.runs):  # most commits are small: one frame
            size += len(run.slab) + RUN_BYTES
            if size >= FRAME_BYTES:
                last = run.last_offset
                runs = self.runs[start : position + 1]
                frames.append(Frame(epoch, first, last, committed_at, runs, holes))
                first, size, start, holes = last + 1, 0, position + 1, ()
        if first <= self.last:
            frames.append(Frame(epoch, first, self.last, committed_at, self.runs[start:], holes))
        return frames


def remove_between(records: dict[bytes, T], start: bytes, stop: bytes) -> None:
    """Delete all records from `start` to before `stop`."""
    for key in [key for key in records if start <= key < stop]:
        del records[key]


def _merge_holes(holes: Sequence[Range]) -> list[Range]:
    """Merge neighbours until there are at most `MOST_HOLES` ranges; nothing between them is stored."""
    joined = join_ranges(holes)
    while len(joined) > MOST_HOLES:
        pairs = [joined[place : place + 2] for place in range(0, len(joined), 2)]
        joined = [(pair[0][0], pair[-1][1]) for pair in pairs]
    return joined
