"""A commit of stages that is decided: what of it is still to be published, and who waits for it."""

from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b

from msgspec import Struct

from penstock.core.chunks import weight_of
from penstock.core.records import ChunkRecord, DecidedRecord, ProgressRecord, ReleasedRecord
from penstock.core.sessions import Session
from penstock.errors import PenstockError

SLICE_ROWS, SLICE_BYTES = 2_000, 1024 * 1024
"""A slice takes no further chunk after this much."""

Key = tuple[str | None, str]
"""Whose commit it is, and how its owner calls it."""
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
        self.is_held = False  # by a subscriber under `block`, or by too many topics

    @property
    def key(self) -> Key:
        """What it is known by."""
        return self.record.owner, self.record.key

    def next_slice(self) -> list[Numbered]:
        """The chunks that are published together next; they stay until that is safe."""
        taken: list[Numbered] = []
        rows = size = 0
        for number, chunk in self.chunks:
            if taken and (rows + chunk.rows > SLICE_ROWS or size + len(chunk.data) > SLICE_BYTES):
                break
            taken.append((number, chunk))
            rows, size = rows + chunk.rows, size + len(chunk.data)
        return taken

    def tell(self, outcome: ReleasedRecord | PenstockError) -> None:
        """Tell everyone who waits how it went."""
        waiting, self.waiting = self.waiting, []
        for done, is_repeated in waiting:
            done(outcome, is_repeated)


class Slice(Struct, frozen=True):
    """What was published in one turn, and how far the commit has got with it."""

    chunks: list[Numbered]
    progress: ProgressRecord
    finished: ReleasedRecord | None
    """If it was the last one."""


def digest_of(ids: Iterable[str]) -> bytes:
    """Tells two lists of stages apart, whose names are checked."""
    return blake2b("\n".join(ids).encode(), digest_size=16).digest()
