"""A log as it was committed at one moment, whether a server writes it or not.

The rows of a commit that a server is still making can be seen already, so only what its mark covers counts.
Without a server everything counts that is there, as it will for the next one.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from sys import maxsize

from msgspec import MsgspecError, msgpack

from penstock.core.cursor import Cursor
from penstock.core.ports import Gap, Position
from penstock.storage.disk.failures import DamagedData
from penstock.storage.disk.index import Index, Piece
from penstock.storage.disk.layout import LOG, STATE, offset_key, table_prefix
from penstock.storage.disk.log import EpochRecord
from penstock.storage.disk.mark import Mark, MarkValue
from penstock.storage.disk.opening import Opening, is_served
from penstock.storage.disk.reading import Reader
from penstock.storage.disk.store import Store
from penstock.storage.disk.survey import EPOCHS, Survey, end_of_epoch, survey

CHUNK_BYTES = 4 << 20
PAUSES_S = (0.02, 0.1)
"""When to look again for what is on the disk and not seen, as happens while a server opens its files."""

_epochs = msgpack.Decoder(EpochRecord)


class Snapshot:
    """What is committed in a data directory; `refresh` moves it on to the present."""

    def __init__(self, store: Store, opening: Opening) -> None:
        self.store = store
        self.opening = opening
        self.log_id = store.log_id
        self.look()

    def refresh(self) -> bool:
        """See what was committed since, and tell whether there is anything."""
        before = self.last_offset
        if (is_served(self.store.path), Mark.read(self.store.path)) != (self.is_served, self.mark):
            self.look()
        return self.last_offset > before

    def look(self) -> None:
        """Survey the log as it is now."""
        served = is_served(self.store.path)
        mark = Mark.read(self.store.path)  # before we catch up, so that everything it covers can be seen
        found = self._survey(mark)
        self.is_served = served
        self.mark = mark
        self.index: Index = found.index
        self.last_offset = mark.offset if served and mark else found.last_offset
        self.epoch = found.epoch
        self.epochs = dict(self._read_epochs())
        self.is_state_behind = found.is_state_behind
        self.damage: tuple[Gap, ...] = tuple(gap for gap in found.damage if gap.first <= self.last_offset)
        self.__dict__.pop("reader", None)

    def _survey(self, mark: MarkValue | None) -> Survey:
        """Walk through what there is now. What the mark covers and is not seen may only be late."""
        if self.opening.salvage is not None:  # a copy, which does not change
            return survey(self.store, mark)
        self.store.catch_up()
        found = survey(self.store, mark)
        for pause_s in PAUSES_S:
            if mark is None or (found.index.last_offset >= mark.offset and not found.is_state_behind):
                break
            time.sleep(pause_s)
            self.store.catch_up()
            found = survey(self.store, mark)
        return found

    @property
    def first_offset(self) -> int:
        """The oldest offset that retention has left."""
        return self.index.first_offset

    def pieces(self) -> list[Piece]:
        """Everything that is stored, oldest first."""
        return self.index.after(0, len(self.index), self.last_offset)

    def records(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """The records of a table of the state that can be read: keys and values as they are stored."""
        prefix = table_prefix(table)

        def go_on(_error: DamagedData, _place: bytes | None) -> None:
            """`verify` tells of it."""

        entries = self.store.scan_around(STATE, prefix, prefix[:-1] + b"\1", on_damage=go_on)
        return ((key.removeprefix(prefix), value) for key, value in entries)

    def _read_epochs(self) -> Iterator[tuple[int, int]]:
        for key, value in self.records(EPOCHS):
            with suppress(MsgspecError, ValueError):
                yield int(key), _epochs.decode(value).first

    def end_of(self, epoch: int) -> int | None:
        """The last offset of an epoch that is over, None if it is not known."""
        return end_of_epoch(self.epochs, epoch)

    def was_lost_earlier(self, gap: Gap) -> bool:
        """Whether the server had gone past a gap already when it last started."""
        began = self.epochs.get(self.epoch)
        return began is not None and gap.last < began

    def cursor(self, offset: int) -> Cursor:
        """The cursor of an offset."""
        return Cursor((Position(self.log_id, self.epoch, offset),))

    def last_sequence(self, topic: str) -> int:
        """The last sequence of a topic that was ever committed; 0 if there was none."""
        frames = self.index.unsealed(maxsize)
        place = frames[0].first - 1 if frames else self.last_offset
        newest = self.reader.last_sequence(topic)
        while place < self.last_offset:
            span = self.reader.runs(place, self.last_offset, CHUNK_BYTES, topic.__eq__)
            newest = max([newest, *(run.sequence + run.count - 1 for run in span.runs)])
            place = span.until
        return newest

    @cached_property
    def reader(self) -> Reader:
        """Reads what the last look has found."""
        return Reader(self.store, self.index, find_node_id(self.store, self.index))


def find_node_id(store: Store, index: Index) -> str:
    """The node that sealed the newest batch, for what is not sealed yet; empty if there is none."""
    from penstock.storage.disk.columns import decode_batch  # noqa: PLC0415 - Arrow takes a while

    for piece in reversed(index.after(0, len(index))):
        if piece.is_sealed and piece.count:
            with suppress(DamagedData, ValueError):
                (data,) = store.get(LOG, [offset_key(piece.first)])
                names: list[str] = decode_batch(data or b"", ["node_id"]).column(0).dictionary.to_pylist()
                return names[-1]
    return ""
