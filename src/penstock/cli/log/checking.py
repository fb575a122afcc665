"""Reads everything in a database and says what is wrong with it.

Reading finds what checksums find. Beyond that, what is stored has to agree: batches with what is stored about
them, frames with their places, records with their tables.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from msgspec import MsgspecError, Struct, msgpack

from penstock.cli.log.batch_checks import disagreements, open_batch
from penstock.cli.log.findings import Finding, Remedy, tidy
from penstock.cli.progress import Advance
from penstock.core.ports import Gap
from penstock.core.records import TABLES
from penstock.storage.disk.database import Entry
from penstock.storage.disk.failures import DamagedData
from penstock.storage.disk.frames import Frame, Summary, decode_frame, decode_summary
from penstock.storage.disk.header import read_header
from penstock.storage.disk.holds import HOLDS, HoldRecord
from penstock.storage.disk.index import Index
from penstock.storage.disk.layout import (
    HEADER_FILE,
    INDEX,
    LOG,
    ROWS,
    SEQUENCES,
    STATE,
    TOPICS,
    offset_of,
    unpack_place,
)
from penstock.storage.disk.log import EpochRecord
from penstock.storage.disk.mark import Mark
from penstock.storage.disk.store import Store
from penstock.storage.disk.survey import EPOCHS

_KINDS: dict[str, type[Struct]] = {**TABLES, EPOCHS: EpochRecord, HOLDS: HoldRecord}
_DECODERS: dict[str, Callable[[bytes], object]] = {
    "meta": offset_of,
    **{table: msgpack.Decoder(kind).decode for table, kind in _KINDS.items()},
}


def check_files(path: Path) -> Iterator[Finding]:
    """What is wrong with the small files of a data directory.

    Raises:
        InvalidConfig: a newer Penstock wrote it.
    """
    if read_header(path) is None:
        yield Finding(f"{HEADER_FILE} is missing or damaged", Remedy.REWRITE)
    if Mark.read(path) is None:
        yield Finding("the mark is missing or damaged: a lost end would not show", Remedy.REWRITE)


class Check:
    """One pass over everything. What was looked at is counted."""

    def __init__(self, store: Store, index: Index, until: int, advance: Advance = lambda _: None) -> None:
        """Get ready.

        Args:
            until: the last offset that is committed; what lies beyond is nobody's business yet.
            advance: told how many bytes of messages have been read.
        """
        self._store = store
        self._index = index
        self._until = until
        self._advance = advance
        self._unreadable: list[Finding] = []
        self._summaries: dict[bytes, Summary] = {}
        self._stored: set[bytes] = set()
        self.batches = self.frames = self.messages = self.records = self.bytes = 0

    def findings(self, damage: Iterable[Gap]) -> Iterator[Finding]:
        """Everything that is wrong; `damage` is what a survey found missing."""
        for gap in damage:
            yield Finding("nothing is stored", Remedy.NONE, gap.first, gap.last)
        yield from self._check_index()
        yield from self._check_batches()
        yield from self._check_frames()
        yield from self._check_topics()
        yield from self._check_sequences()
        yield from self._check_state()
        yield from self._unreadable

    def _scan(self, family: str) -> Iterator[Entry]:
        """All entries of a family that can be read; what cannot is noted."""
        return self._store.scan_around(family, on_damage=partial(self._note, family))

    def _note(self, family: str, error: DamagedData, _place: bytes | None) -> None:
        what = f"a part of the database cannot be read: {tidy(str(error), self._store.path)}"
        self._unreadable.append(Finding(what, Remedy.REBUILD, None, None, family, error.key))

    def _check_index(self) -> Iterator[Finding]:
        for key, data in self._scan(INDEX):
            try:
                self._summaries[key] = decode_summary(data)
            except MsgspecError:
                what = "an entry of the index makes no sense"
                yield Finding(what, Remedy.REMOVE, offset_of(key), None, INDEX, key)

    def _check_batches(self) -> Iterator[Finding]:
        for key, data in self._scan(LOG):
            self._stored.add(key)
            self._read(len(data))
            yield from self._check_batch(key, data)
        for key, summary in self._summaries.items():
            if summary.count and key not in self._stored:
                what = "a sealed batch is missing or cannot be read"
                yield Finding(what, Remedy.REMOVE, summary.first, summary.last, LOG, key)

    def _check_batch(self, key: bytes, data: bytes) -> Iterator[Finding]:
        first, summary = offset_of(key), self._summaries.get(key)
        last = None if summary is None else summary.last
        self.batches += 1
        try:
            batch = open_batch(data)
        except ValueError as error:
            yield Finding(f"a sealed batch makes no sense: {error}", Remedy.REMOVE, first, last, LOG, key)
            return
        self.messages += batch.num_rows
        wrong = list(disagreements(self._store, first, batch, len(data), summary))
        if wrong:
            what = f"a sealed batch is sound, but {' and '.join(wrong)}"
            yield Finding(what, Remedy.REINDEX, first, batch.column("offset")[-1].as_py(), LOG, key)

    def _check_frames(self) -> Iterator[Finding]:
        for key, data in self._scan(ROWS):
            first = offset_of(key)
            if first > self._until:
                continue
            self._read(len(data))
            self.frames += 1
            try:
                frame = decode_frame(data)
            except (MsgspecError, ValueError, LookupError) as error:
                yield Finding(f"a frame makes no sense: {error}", Remedy.REMOVE, first, None, ROWS, key)
                continue
            if not _is_in_order(frame, first):
                what = "the messages of a frame are not those of its place"
                yield Finding(what, Remedy.REMOVE, first, frame.last, ROWS, key)
            elif self._is_sealed(first):
                what = "a frame that was sealed is still there"
                yield Finding(what, Remedy.REMOVE, first, frame.last, ROWS, key)
            else:
                self.messages += sum(run.count for run in frame.runs)

    def _is_sealed(self, offset: int) -> bool:
        return any(piece.is_sealed and piece.first <= offset for piece in self._index.after(offset - 1, 1))

    def _check_topics(self) -> Iterator[Finding]:
        for key, _ in self._scan(TOPICS):
            if key not in self._summaries and key not in self._stored:
                yield Finding("topics of a batch that is not there", Remedy.REMOVE, None, None, TOPICS, key)

    def _check_sequences(self) -> Iterator[Finding]:
        for key, value in self._scan(SEQUENCES):
            if not _can(unpack_place, value):
                what = "the place of a sequence makes no sense"
                yield Finding(what, Remedy.REMOVE, None, None, SEQUENCES, key)

    def _check_state(self) -> Iterator[Finding]:
        for key, value in self._scan(STATE):
            self.records += 1
            table = key.partition(b"\0")[0].decode(errors="replace")
            if table in _DECODERS and not _can(_DECODERS[table], value):
                what = f"a record of {table} makes no sense"
                yield Finding(what, Remedy.REMOVE, None, None, STATE, key)

    def _read(self, size: int) -> None:
        self.bytes += size
        self._advance(self.bytes)


def _is_in_order(frame: Frame, first: int) -> bool:
    """Whether a frame is the one of its place, and its messages lie one after another in it."""
    place = first
    for run in frame.runs:
        if run.offset < place or run.count < 1:
            return False
        place = run.offset + run.count
    return frame.first == first and place - 1 <= frame.last


def _can(decode: Callable[[bytes], object], value: bytes) -> bool:
    try:
        decode(value)
    except (MsgspecError, ValueError, struct.error):
        return False
    return True
