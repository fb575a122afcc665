"""One commit: what it takes while it is open, and the changes of the database that it comes to.

It is filled on the loop, then handed to the thread that writes and not touched again. When it cannot be
written, the next one inherits what has to be written all the same.
"""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct, msgpack

from penstock.core.ports import Settled, Ticket
from penstock.model import Run
from penstock.storage.disk.frames import Frame, Range, encode_frame, join_ranges
from penstock.storage.disk.index import Piece
from penstock.storage.disk.layout import COMMIT_KEY, ROWS, STATE, offset_key
from penstock.storage.disk.store import Changes

T = TypeVar("T")

FRAME_BYTES = 1024 * 1024
"""About how much one stored value holds; a commit may have several."""
COMMIT_RUNS, COMMIT_BYTES = 5_000, 1024 * 1024
"""A commit takes no further turn after this much: the write holds up everyone while it lasts."""
MOST_HOLES = 1_000
"""How exactly a commit tells which messages could not be stored, however long it lasted."""
RUN_BYTES = 100
"""What a run weighs beside its bytes."""

_encoder = msgpack.Encoder()


class Commit:
    """What is written together: all of it, or nothing."""

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
        remove_between(self.state, start, stop)  # cuts are made before puts
        self.cuts[start] = max(stop, self.cuts.get(start, stop))

    def inherit(self, failed: "Commit") -> None:
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

    def changes(self, epoch: int, committed_at: int) -> tuple[Changes, list[Piece]]:
        """What is to be written, and the pieces that the index has to know of when it is."""
        changes = Changes()
        pieces: list[Piece] = []
        for frame in self._frames(epoch, committed_at):
            data = encode_frame(frame)
            changes.put(ROWS, offset_key(frame.first), data)
            pieces.append(Piece.of_frame(frame, len(data)))
        if self.is_heir and pieces:
            rest = offset_key(pieces[-1].first + 1), offset_key(self.last + 1)
            changes.delete_range(ROWS, *rest)  # what a write that failed may have left there all the same
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
        """Its runs in values of a size that can be read one by one."""
        if self.last < self.first:
            return []
        frames: list[Frame] = []
        first, size, start, holes = self.first, 0, 0, tuple(self.holes)  # these came before the runs
        is_small = self.bytes + len(self.runs) * RUN_BYTES < FRAME_BYTES
        for position, run in enumerate(() if is_small else self.runs):  # most are, and need no look at each
            size += len(run.slab) + RUN_BYTES
            if size >= FRAME_BYTES:
                last = run.offset + run.count - 1
                runs = self.runs[start : position + 1]
                frames.append(Frame(epoch, first, last, committed_at, runs, holes))
                first, size, start, holes = last + 1, 0, position + 1, ()
        if first <= self.last:
            frames.append(Frame(epoch, first, self.last, committed_at, self.runs[start:], holes))
        return frames


def remove_between(records: dict[bytes, T], start: bytes, stop: bytes) -> None:
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
