"""A log in a real store, with frames, sealed batches and damage where a test wants them."""

from collections.abc import Iterable, Sequence

from penstock.runs import Run
from penstock.storage.disk.pieces.arrow_columns import encode_batch, summarize, to_batch
from penstock.storage.disk.pieces.frames import Frame, Range, encode_extents, encode_frame, encode_summary
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.read.reader import Reader
from penstock.storage.disk.rocksdb.layout import (
    INDEX,
    LOG,
    ROWS,
    SEQUENCES,
    TOPICS,
    offset_key,
    pack_place,
    sequence_key,
)
from penstock.storage.disk.rocksdb.store import Changes, Store
from tests.support.samples import make_run

NOON = 1_700_000_000_000_000

Message = tuple[int, str, int, bytes]
"""Offset, topic, sequence and payload."""


class StoredLog:
    """What a server would have written, with everything that is in it."""

    def __init__(self, store: Store, index: Index | None = None) -> None:
        self.store = store
        self.index = Index() if index is None else index
        self.reader = Reader(store, self.index, "node")
        self.messages: list[Message] = []
        self.frames: list[Frame] = []  # that are not sealed
        self._sequences: dict[str, int] = {}

    @property
    def head(self) -> int:
        return self.index.last_offset

    def commit(self, *runs: Run, skipped: int = 0, holes: Sequence[Range] = ()) -> Piece:
        """A frame of these runs; some offsets before them belong to topics that are not kept."""
        first, offset = self.head + 1, self.head + 1 + skipped
        for run in runs:
            self._stamp(run, offset)
            offset += run.count
        last = max(offset - 1, first, *(last for _, last in holes), first)
        frame = Frame(1, first, last, NOON, runs, tuple(holes))
        self.frames.append(frame)
        self.put(ROWS, first, encode_frame(frame))
        count, size = sum(run.count for run in runs), len(encode_frame(frame))
        piece = Piece(first, last, count, size, NOON + first, is_sealed=False, holes=tuple(holes))
        self.index.add(piece)
        return piece

    def _stamp(self, run: Run, offset: int) -> None:
        sequence = self._sequences.get(run.topic, 0) + 1
        self._sequences[run.topic] = sequence + run.count - 1
        run.offset, run.sequence, run.published_at = offset, sequence, NOON + offset
        self.messages += (
            (offset + index, run.topic, sequence + index, run.payload(index)) for index in range(run.count)
        )

    def commit_each(self, *topics: str, qos: int = 1) -> None:
        """A frame for each topic, with one message."""
        for topic in topics:
            self.commit(make_run(topic, b"%s-%d" % (topic.encode(), self.head + 1), qos=qos))

    def seal(self, *, tell_index: bool = True) -> Piece:
        """Make a batch of everything that is not sealed; the index need not be told yet."""
        frames, self.frames = self.frames, []
        batch = to_batch(frames, "node")
        stream = encode_batch(batch)
        summary, extents = summarize(frames, batch, len(stream))
        changes = Changes()
        for topic, extent in extents.items():
            place = pack_place(summary.first, extent.last)
            changes.put(SEQUENCES, sequence_key(topic, extent.first), place)
        key = offset_key(summary.first)
        changes.put(LOG, key, stream)
        changes.put(INDEX, key, encode_summary(summary))
        changes.put(TOPICS, key, encode_extents(extents))
        changes.delete_range(ROWS, key, offset_key(summary.last + 1))
        self.store.write(changes, sync=False)
        piece = Piece(
            summary.first,
            summary.last,
            summary.count,
            len(stream),
            NOON,
            is_sealed=True,
            holes=summary.holes,
            reserved=summary.reserved,
        )
        if tell_index:
            self.index.replace(piece)
        return piece

    def put(self, family: str, offset: int, value: bytes) -> None:
        """Set a value, good or bad."""
        changes = Changes()
        changes.put(family, offset_key(offset), value)
        self.store.write(changes, sync=False)

    def remove(self, family: str, offset: int) -> None:
        """Remove a value as if it had never been there."""
        changes = Changes()
        changes.delete(family, offset_key(offset))
        self.store.write(changes, sync=False)

    def trim(self, first_offset: int) -> None:
        """Let everything before an offset leave by retention."""
        self.index.trim(first_offset)
        changes = Changes()
        for family in (ROWS, LOG, INDEX, TOPICS):
            changes.delete_range(family, offset_key(0), offset_key(first_offset))
        self.store.write(changes, sync=False)

    def value(self, family: str, offset: int) -> bytes | None:
        """What is stored."""
        return self.store.get(family, [offset_key(offset)])[0]


def messages_in(runs: Iterable[Run]) -> list[Message]:
    """Runs as single messages."""
    return [
        (run.offset + index, run.topic, run.sequence + index, run.payload(index))
        for run in runs
        for index in range(run.count)
    ]


def empty(store: Store) -> None:
    """Remove everything, so that a store can be used again: opening one takes long."""
    changes = Changes()
    for family in (ROWS, LOG, INDEX, TOPICS, SEQUENCES):
        changes.delete_range(family, b"", b"\xfe")
    store.write(changes, sync=False)
