"""A log for tests of retention, filled by hand."""

from collections.abc import Iterator, Sequence

from penstock.core.ports.turn import Sequencer
from penstock.core.settings import LogSettings
from penstock.runs import Run
from penstock.storage.disk.holds import Holds
from penstock.storage.disk.pieces.frames import (
    Extent,
    Frame,
    Summary,
    decode_frame,
    encode_extents,
    encode_frame,
    encode_summary,
)
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.retention import Retention, Trimmed
from penstock.storage.disk.rocksdb.layout import (
    FAMILIES,
    INDEX,
    LOG,
    ROWS,
    SEQUENCES,
    TOPICS,
    offset_key,
    offset_of,
    pack_place,
    sequence_key,
    unpack_place,
)
from penstock.storage.disk.rocksdb.store import Changes, Store
from penstock.storage.memory import MemoryStateStore
from tests.support.clock import ManualClock
from tests.support.samples import make_run

HOUR_US = 3_600_000_000
NOW_US = 1_700_000_000_000_000
UNLIMITED = LogSettings(retention_s=0, retention_bytes=0)
SIZE = 1_000
"""What a piece takes, as far as the index is told."""

Messages = str
"""The topics of some messages, one letter each."""


class RetentionLog:
    """A log in a real store, filled by hand: each piece begins where the last one ended."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.open(Index())

    def open(self, index: Index) -> None:
        """Go on with what is there."""
        self.index = index
        self.sequences: dict[str, int] = {}
        self.clock = ManualClock(NOW_US)
        sequencer = Sequencer(0)
        self.holds = Holds(MemoryStateStore(sequencer), sequencer, self.clock, self.index, LogSettings())
        self.retain()

    def retain(self, limits: LogSettings = UNLIMITED) -> Retention:
        """Begin anew with these limits."""
        self.retention = Retention(self.store, self.index, limits, self.holds)
        return self.retention

    def trim(self, owed_from: int | None = None) -> Trimmed | None:
        return self.retention.trim(self.clock.wall_us(), owed_from)

    def frame(
        self, topics: Messages | Sequence[str], began_at: int = NOW_US, data: bytes | None = None
    ) -> Piece:
        """Commit a frame."""
        first, stamped = self._stamp(topics)
        runs = [make_run(topic, b"x", sequence=at, offset=first + i) for i, (topic, at) in enumerate(stamped)]
        piece = Piece(first, first + len(stamped) - 1, len(stamped), SIZE, began_at, is_sealed=False)
        changes = Changes()
        value = encode_frame(Frame(1, piece.first, piece.last, began_at, runs)) if data is None else data
        changes.put(ROWS, offset_key(first), value)
        self._add(piece, changes)
        return piece

    def batch(
        self,
        topics: Messages | Sequence[str],
        began_at: int = NOW_US,
        stream: bytes = b"arrow",
        extents_data: bytes | None = None,
    ) -> Piece:
        """Store a batch that was sealed at once."""
        first, stamped = self._stamp(topics)
        piece = Piece(first, first + len(stamped) - 1, len(stamped), SIZE, began_at, is_sealed=True)
        self._add(piece, self._sealed(piece, stamped, stream, extents_data))
        return piece

    def seal(self) -> None:
        """Make one batch of all frames."""
        frames = self.index.unsealed(1_000)
        if frames:
            count = sum(frame.count for frame in frames)
            piece = Piece(frames[0].first, frames[-1].last, count, SIZE, frames[0].began_at, is_sealed=True)
            stamped = [(run.topic, run.sequence) for run in self._unsealed()]
            changes = self._sealed(piece, stamped)
            changes.delete_range(ROWS, offset_key(piece.first), offset_key(piece.last + 1))
            self.store.write(changes, sync=False)
            self.index.replace(piece)

    def empty(self) -> None:
        """Begin anew."""
        changes = Changes()
        for family in FAMILIES:
            changes.delete_range(family, b"\0\0", b"\xfe")
        self.store.write(changes, sync=False)
        self.open(Index())

    def kept(self) -> list[int]:
        """Where the pieces begin that are left."""
        return [piece.first for piece in self.index.after(0)]

    def offsets(self, family: str) -> list[int]:
        """Where the values of a family begin."""
        return [offset_of(key) for key in self.store.scan_keys(family)]

    def places(self) -> dict[str, list[int]]:
        """The sequences of all keys, by topic."""
        found: dict[str, list[int]] = {}
        for key in self.store.scan_keys(SEQUENCES):
            found.setdefault(key[:-9].decode(), []).append(offset_of(key[-8:]))
        return found

    def last_sequences(self) -> dict[str, int]:
        """The last sequence of each topic, as far as the keys know."""
        return {key[:-9].decode(): unpack_place(value)[1] for key, value in self.store.scan(SEQUENCES)}

    def unsealed_sequences(self) -> dict[str, int]:
        """The last sequence of each topic that is in frames."""
        return {run.topic: run.sequence for run in self._unsealed()}

    def _unsealed(self) -> Iterator[Run]:
        for _, data in self.store.scan(ROWS):
            yield from decode_frame(data).runs

    def _sealed(
        self,
        piece: Piece,
        stamped: Sequence[tuple[str, int]],
        stream: bytes = b"arrow",
        extents_data: bytes | None = None,
    ) -> Changes:
        """What a sealer writes."""
        extents: dict[str, Extent] = {}
        for topic, sequence in stamped:
            lowest = extents[topic].first if topic in extents else sequence
            extents[topic] = Extent(lowest, sequence, sequence - lowest + 1, 0)
        changes = Changes()
        for topic, extent in extents.items():
            changes.put(SEQUENCES, sequence_key(topic, extent.first), pack_place(piece.first, extent.last))
        key, began_at = offset_key(piece.first), piece.began_at
        summary = Summary(piece.first, piece.last, piece.count, SIZE, began_at, began_at, 1, 1)
        changes.put(LOG, key, stream)
        changes.put(INDEX, key, encode_summary(summary))
        changes.put(TOPICS, key, encode_extents(extents) if extents_data is None else extents_data)
        return changes

    def _stamp(self, topics: Messages | Sequence[str]) -> tuple[int, list[tuple[str, int]]]:
        stamped = []
        for topic in topics:
            self.sequences[topic] = self.sequences.get(topic, 0) + 1
            stamped.append((topic, self.sequences[topic]))
        return self.index.last_offset + 1, stamped

    def _add(self, piece: Piece, changes: Changes) -> None:
        self.store.write(changes, sync=False)
        self.index.add(piece)


def bytes_for(pieces: int) -> LogSettings:
    """Room for so many pieces."""
    return LogSettings(retention_s=0, retention_bytes=pieces * SIZE)
