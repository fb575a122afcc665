"""Verification of a data directory: reads everything, and returns what is damaged and how to repair it.

Reading checks every checksum. Beyond that, the parts have to agree: batches with their index entries, frames
with their keys, records with their tables.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import MsgspecError, Struct, msgpack

from penstock.common.statement import Gap
from penstock.common.text import offsets_text
from penstock.core.durability.records import TABLES
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.holds import HOLDS, HoldRecord
from penstock.storage.disk.pieces.arrow_columns import SCHEMA, count_reserved, decode_batch
from penstock.storage.disk.pieces.frames import (
    Extent,
    Frame,
    Summary,
    decode_extents,
    decode_frame,
    decode_summary,
)
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.recovery.survey import EPOCHS, EpochRecord
from penstock.storage.disk.rocksdb.database import Entry
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import (
    HEADER_FILE,
    INDEX,
    LOG,
    ROWS,
    SEQUENCES,
    STATE,
    TOPICS,
    offset_key,
    offset_of,
    pack_place,
    read_header,
    sequence_key,
    unpack_place,
)
from penstock.storage.disk.rocksdb.store import Store
from penstock.storage.disk.snapshot import Snapshot, database_error_text

Advance = Callable[[int], None]
"""Called with how much is done, of the total."""
Progress = Callable[[str, int], AbstractContextManager[Advance]]
"""Opens a progress display for an activity with a total."""

_KEYS_AT_ONCE = 10_000

_KINDS: dict[str, type[Struct]] = {**TABLES, EPOCHS: EpochRecord, HOLDS: HoldRecord}
_DECODERS: dict[str, Callable[[bytes], object]] = {
    "meta": offset_of,
    **{table: msgpack.Decoder(kind).decode for table, kind in _KINDS.items()},
}


def no_progress(_what: str, _total: int) -> AbstractContextManager[Advance]:
    """Null object: displays nothing."""
    return nullcontext(lambda _: None)


class Remedy(StrEnum):
    """Action of `repair` for a finding."""

    REBUILD = "rebuild"
    """Copy everything readable into a new database."""
    REINDEX = "reindex"
    """Write the index entries of a sealed batch again."""
    REMOVE = "remove"
    """Remove an unusable entry."""
    REWRITE = "rewrite"
    """Write a small file again."""
    NONE = "none"
    """No action: the data is lost."""


class Finding(Struct, frozen=True):
    """One damage."""

    what: str
    remedy: Remedy
    first: int | None = None
    last: int | None = None
    """Offsets of the messages concerned, if any."""
    family: str = ""
    key: bytes = b""
    """Key of the entry in the database, if it has one."""

    @property
    def is_repairable(self) -> bool:
        """True if `repair` has a remedy for it."""
        return self.remedy is not Remedy.NONE

    @property
    def text(self) -> str:
        """The finding in one line."""
        return self.what if self.first is None else f"{self.offsets}: {self.what}"

    @property
    def offsets(self) -> str:
        """The offsets in words; empty if it is not about messages."""
        return "" if self.first is None else offsets_text(self.first, self.last or self.first)


class VerifyReport(Struct, frozen=True):
    """Result of a verification: how much was read, and what is damaged."""

    messages: int
    batches: int
    frames: int
    records: int
    findings: tuple[Finding, ...]
    known: tuple[Finding, ...]
    """Losses from before the last start of the server, which it has accepted."""


def verify(snapshot: Snapshot, progress: Progress = no_progress) -> VerifyReport:
    """Read everything in a data directory, and return what is damaged.

    A running server moves data during the read. What seems damaged is therefore read twice: only what is
    damaged both times is returned.

    Raises:
        InvalidConfig: a newer Penstock wrote the directory.
    """
    check, findings = _check(snapshot, progress)
    if findings and snapshot.is_served:
        snapshot.look()
        check, again = _check(snapshot, progress)
        findings = [each for each in again if each in findings]
    known = _known_among(findings, snapshot)
    return VerifyReport(
        messages=check.messages,
        batches=check.batches,
        frames=check.frames,
        records=check.records,
        findings=tuple(each for each in findings if each not in known),
        known=tuple(known),
    )


def _check(snapshot: Snapshot, progress: Progress) -> tuple["Check", list[Finding]]:
    with progress("reading", sum(piece.bytes for piece in snapshot.pieces())) as advance:
        check = Check(snapshot.store, snapshot.index, snapshot.last_offset, advance)
        inside = list(check.findings(snapshot.damage))
    return check, [*check_files(snapshot.store.path), *_check_opening(snapshot), *inside]


def _check_opening(snapshot: Snapshot) -> Iterator[Finding]:
    salvage = snapshot.opening.salvage
    if salvage is not None:
        words = database_error_text(salvage.words, snapshot.store.path)
        what = f"the database is damaged ({words}); what follows is about what can be read of it"
        yield Finding(what, Remedy.REBUILD)
    if snapshot.is_state_behind:
        yield Finding("changes of sessions are lost", Remedy.NONE)


def _known_among(findings: list[Finding], snapshot: Snapshot) -> list[Finding]:
    """Losses from before the last start, unless other damage may be the reason they show."""
    if any(each.is_repairable and each.remedy is not Remedy.REWRITE for each in findings):
        return []
    earlier = {(gap.first, gap.last) for gap in snapshot.damage if snapshot.was_lost_earlier(gap)}
    return [each for each in findings if (each.first, each.last) in earlier]


def check_files(path: Path) -> Iterator[Finding]:
    """Damage of the small files in a data directory.

    Raises:
        InvalidConfig: a newer Penstock wrote the directory.
    """
    if read_header(path) is None:
        yield Finding(f"{HEADER_FILE} is missing or damaged", Remedy.REWRITE)
    if DurableMark.read(path) is None:
        yield Finding("the mark is missing or damaged: a lost end would not show", Remedy.REWRITE)


class Check:
    """One pass over a database, with counters of what was read."""

    def __init__(self, store: Store, index: Index, until: int, advance: Advance = lambda _: None) -> None:
        """Prepare a pass.

        Args:
            until: the last committed offset; anything beyond is ignored.
            advance: called with the bytes of messages read so far.
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
        """All damage; `damage` has the gaps that a survey found."""
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
        """The readable entries of a family; unreadable parts become findings."""
        return self._store.scan_readable(family, on_damage=partial(self._note, family))

    def _note(self, family: str, error: DamagedData, _place: bytes | None) -> None:
        what = f"a part of the database cannot be read: {database_error_text(str(error), self._store.path)}"
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
            if not _is_consistent(frame, first):
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
            if not _is_decodable(unpack_place, value):
                what = "the place of a sequence makes no sense"
                yield Finding(what, Remedy.REMOVE, None, None, SEQUENCES, key)

    def _check_state(self) -> Iterator[Finding]:
        for key, value in self._scan(STATE):
            self.records += 1
            table = key.partition(b"\0")[0].decode(errors="replace")
            if table in _DECODERS and not _is_decodable(_DECODERS[table], value):
                what = f"a record of {table} makes no sense"
                yield Finding(what, Remedy.REMOVE, None, None, STATE, key)

    def _read(self, size: int) -> None:
        self.bytes += size
        self._advance(self.bytes)


def _is_consistent(frame: Frame, first: int) -> bool:
    """True if a frame belongs to its key, and its messages follow one another."""
    place = first
    for run in frame.runs:
        if run.offset < place or run.count < 1:
            return False
        place = run.offset + run.count
    return frame.first == first and place - 1 <= frame.last


def _is_decodable(decode: Callable[[bytes], object], value: bytes) -> bool:
    try:
        decode(value)
    except (MsgspecError, ValueError, struct.error):
        return False
    return True


def open_batch(data: bytes) -> pa.RecordBatch:
    """Decode and validate a sealed batch.

    Raises:
        ValueError: this is not a valid batch.
    """
    batch = decode_batch(data)
    if not batch.schema.equals(SCHEMA):
        raise ValueError("its columns are not those of a log")
    batch.validate(full=True)
    offsets = batch.column("offset")
    if not batch.num_rows or not pc.all(pc.less(offsets[:-1], offsets[1:])).as_py():
        raise ValueError("its offsets do not rise")
    return batch


def extents_in(batch: pa.RecordBatch) -> dict[str, Extent]:
    """The extent of each topic in a batch."""
    columns = {
        "topic": batch.column("topic").dictionary_decode(),
        "sequence": batch.column("sequence"),
        "qos": batch.column("qos"),
    }
    figures = [("sequence", "min"), ("sequence", "max"), ("sequence", "count"), ("qos", "max")]
    grouped = pa.table(columns).group_by("topic").aggregate(figures)
    names = grouped.column("topic").to_pylist()
    values = (grouped.column(f"{column}_{figure}").to_pylist() for column, figure in figures)
    return {name: Extent(*extent) for name, *extent in zip(names, *values, strict=True)}


def places_in(first: int, extents: dict[str, Extent]) -> Iterator[tuple[bytes, bytes]]:
    """Index entries of the sequences of each topic: keys and values as stored."""
    for topic, extent in extents.items():
        yield sequence_key(topic, extent.first), pack_place(first, extent.last)


def disagreements(
    store: Store, first: int, batch: pa.RecordBatch, size: int, summary: Summary | None
) -> Iterator[str]:
    """Index entries that disagree with a batch, in words."""
    if summary is None:
        yield "the index does not know it"
    elif not is_summary_of(summary, first, batch, size):
        yield "the index says something else of it"
    extents = extents_in(batch)
    if _stored_extents(store, first) != extents:
        yield "the list of its topics is damaged"
    if not _has_places(store, dict(places_in(first, extents))):
        yield "the places of its sequences are damaged"


def is_summary_of(summary: Summary, first: int, batch: pa.RecordBatch, size: int) -> bool:
    """True if a summary agrees with its batch."""
    offsets, epochs = batch.column("offset"), batch.column("epoch")
    return (
        summary.first == first
        and first <= offsets[0].as_py()
        and offsets[-1].as_py() <= summary.last
        and (summary.count, summary.bytes) == (batch.num_rows, size)
        and summary.began_at == batch.column("published_at")[0].value
        and summary.first_epoch <= epochs[0].as_py() <= epochs[-1].as_py() <= summary.last_epoch
        and summary.reserved in (None, count_reserved(batch))
    )


def _stored_extents(store: Store, first: int) -> dict[str, Extent] | None:
    try:
        (data,) = store.get(TOPICS, [offset_key(first)])
        return None if data is None else decode_extents(data)
    except (DamagedData, MsgspecError):
        return None


def _has_places(store: Store, places: dict[bytes, bytes]) -> bool:
    keys = list(places)
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        wanted = keys[start : start + _KEYS_AT_ONCE]
        try:
            found = store.get(SEQUENCES, wanted)
        except DamagedData:
            return False
        if found != [places[key] for key in wanted]:
            return False
    return True
