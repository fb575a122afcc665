"""Read-only snapshot of a data directory: what is committed in it, with or without a running server.

The rows of a commit in progress are visible already, so only what the durable mark covers counts. Without a
server everything that is stored counts, as it does at the next start.
"""

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from sys import maxsize

from msgspec import MsgspecError, msgpack

from penstock.common.cursor import Cursor, Position
from penstock.common.statement import Gap
from penstock.errors import InvalidConfig
from penstock.storage.disk.commit.durable_mark import DurableMark, MarkValue
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.read.reader import Reader
from penstock.storage.disk.recovery.opening import Opening, is_served, open_store
from penstock.storage.disk.recovery.survey import EPOCHS, EpochRecord, Survey, end_of_epoch, survey
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import (
    DATABASE_FOLDER,
    HEADER_FILE,
    LOG,
    STATE,
    offset_key,
    table_prefix,
)
from penstock.storage.disk.rocksdb.store import Store

CHUNK_BYTES = 4 << 20
PAUSES_S = (0.02, 0.1)
"""Delays before another look for data the mark covers; it appears late while a server opens its files."""

_epochs = msgpack.Decoder(EpochRecord)


class Snapshot:
    """Committed state of a data directory; `refresh` advances it to the present."""

    def __init__(self, store: Store, opening: Opening) -> None:
        self.store = store
        self.opening = opening
        self.log_id = store.log_id
        self.look()

    def refresh(self) -> bool:
        """Include what was committed since the last look; return whether there is anything new."""
        before = self.last_offset
        if (is_served(self.store.path), DurableMark.read(self.store.path)) != (self.is_served, self.mark):
            self.look()
        return self.last_offset > before

    def look(self) -> None:
        """Survey the log as it is now."""
        served = is_served(self.store.path)
        mark = DurableMark.read(self.store.path)  # before catching up, so that all it covers is visible
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
        """Survey the store; what the mark covers and is not visible yet may only be late."""
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
        """The oldest offset that retention has not removed."""
        return self.index.first_offset

    def pieces(self) -> list[Piece]:
        """Everything that is stored, oldest first."""
        return self.index.after(0, len(self.index), self.last_offset)

    def records(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """The readable records of a state table: keys and values as they are stored."""
        prefix = table_prefix(table)

        def skip(_error: DamagedData, _place: bytes | None) -> None:
            """`verify` reports it."""

        entries = self.store.scan_readable(STATE, prefix, prefix[:-1] + b"\1", on_damage=skip)
        return ((key.removeprefix(prefix), value) for key, value in entries)

    def _read_epochs(self) -> Iterator[tuple[int, int]]:
        for key, value in self.records(EPOCHS):
            with suppress(MsgspecError, ValueError):
                yield int(key), _epochs.decode(value).first

    def end_of(self, epoch: int) -> int | None:
        """The last offset of an epoch that has ended; None if it is not known."""
        return end_of_epoch(self.epochs, epoch)

    def was_lost_earlier(self, gap: Gap) -> bool:
        """True if the gap existed already when the server last started."""
        began = self.epochs.get(self.epoch)
        return began is not None and gap.last < began

    def cursor(self, offset: int) -> Cursor:
        """The cursor of an offset."""
        return Cursor((Position(self.log_id, self.epoch, offset),))

    def last_sequence(self, topic: str) -> int:
        """The last committed sequence of a topic; 0 if there is none."""
        frames = self.index.unsealed(maxsize)
        place = frames[0].first - 1 if frames else self.last_offset
        newest = self.reader.last_sequence(topic)
        while place < self.last_offset:
            span = self.reader.runs(place, self.last_offset, CHUNK_BYTES, topic.__eq__)
            newest = max([newest, *(run.last_sequence for run in span.runs)])
            place = span.until
        return newest

    @cached_property
    def reader(self) -> Reader:
        """Reader of the state that the last look found."""
        return Reader(self.store, self.index, find_node_id(self.store, self.index))


@contextmanager
def open_snapshot(directory: Path) -> Iterator[Snapshot]:
    """Open a data directory read-only.

    Raises:
        InvalidConfig: this is not a data directory, or its database is missing.
    """
    if lacks_database(directory):
        raise InvalidConfig(f"{directory}: {describe_missing_database(directory)}")
    store, opening = open_store(directory, read_only=True)
    try:
        yield Snapshot(store, opening)
    finally:
        store.close()


def lacks_database(directory: Path) -> bool:
    """True for a data directory whose database folder is missing."""
    # A draft that was to take its place does so when the directory is opened to write.
    names = (DATABASE_FOLDER, f"{DATABASE_FOLDER}.draft")
    return (directory / HEADER_FILE).exists() and not any((directory / name).exists() for name in names)


def describe_missing_database(directory: Path) -> str:
    """The consequence of a missing database, for an error text."""
    mark = DurableMark.read(directory)
    lost = "everything" if mark is None else f"everything up to offset {mark.offset}"
    return f"the database folder {DATABASE_FOLDER}/ is missing; {lost} is lost unless it is put back"


def database_error_text(words: str, directory: Path) -> str:
    """A RocksDB error in one line, with the paths of the data directory: it may have read a copy."""
    database = str(directory / DATABASE_FOLDER)
    scratch = re.escape(str(Path(tempfile.gettempdir()).absolute())) + r"/+penstock-[^/]+/[a-z]+"
    seen = re.compile(rf"(?:{scratch}|{re.escape(database)})(?:\.draft)?(?:\.copy)?(?=/)/+")
    return " ".join(seen.sub(lambda _: f"{database}/", words).split())


def find_node_id(store: Store, index: Index) -> str:
    """The node that sealed the newest batch, used for rows not sealed yet; empty if there is none."""
    from penstock.storage.disk.pieces.arrow_columns import decode_batch  # noqa: PLC0415 - Arrow takes a while

    for piece in reversed(index.after(0, len(index))):
        if piece.is_sealed and piece.count:
            with suppress(DamagedData, ValueError):
                (data,) = store.get(LOG, [offset_key(piece.first)])
                names: list[str] = decode_batch(data or b"", ["node_id"]).column(0).dictionary.to_pylist()
                return names[-1]
    return ""
