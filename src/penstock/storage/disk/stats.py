"""Statistics of a data directory, gathered without reading its messages."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from sys import maxsize

import msgspec
from msgspec import MsgspecError, Struct

from penstock.common.statement import Gap
from penstock.core.durability.records import BEHIND, RETAINED, SESSIONS, BehindRecord, SessionRecord
from penstock.storage.disk.holds import HOLDS, HoldRecord
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import DATABASE_FOLDER, FORMAT, SEQUENCES
from penstock.storage.disk.snapshot import Snapshot, database_error_text

_SEQUENCE_BYTES = 9  # behind the topic in a key: a zero and the sequence
_AFTER_ALL_TOPICS = b"\xff"


class Epoch(Struct, frozen=True):
    """One start of the log, and the offset it began with."""

    number: int
    first: int


class Held(Struct, frozen=True):
    """A retention hold; it lapses unless its reader renews it."""

    name: str
    owner: str
    offset: int
    lapses_at: datetime


class Sessions(Struct, frozen=True):
    """Sessions stored in the directory."""

    total: int
    absent: int
    behind: int
    """Sessions whose offline queue is not empty."""
    owed_from: int | None
    """Offset after which the oldest queued message lies."""


class LogStats(Struct, frozen=True):
    """Contents of `penstock log info`."""

    path: str
    log_id: str
    format: int
    is_served: bool
    epochs: tuple[Epoch, ...]
    first_offset: int
    last_offset: int
    messages: int
    bytes: int
    disk_bytes: int
    sealed_batches: int
    unsealed_frames: int
    unsealed_messages: int
    first_published_at: datetime | None
    last_published_at: datetime | None
    topics: int | None
    """None if damage makes it unknown."""
    damage: tuple[Gap, ...]
    notes: tuple[str, ...]
    holds: tuple[Held, ...]
    sessions: Sessions
    retained: int


def gather_stats(snapshot: Snapshot) -> LogStats:
    """Gather the statistics of a snapshot."""
    pieces = snapshot.pieces()
    frames = [piece for piece in pieces if not piece.is_sealed]
    return LogStats(
        path=str(snapshot.store.path),
        log_id=snapshot.log_id,
        format=FORMAT,
        is_served=snapshot.is_served,
        epochs=tuple(Epoch(*each) for each in sorted(snapshot.epochs.items())),
        first_offset=snapshot.first_offset,
        last_offset=snapshot.last_offset,
        messages=sum(piece.count for piece in pieces),
        bytes=sum(piece.bytes for piece in pieces),
        disk_bytes=_disk_bytes(snapshot),
        sealed_batches=len(pieces) - len(frames),
        unsealed_frames=len(frames),
        unsealed_messages=sum(piece.count for piece in frames),
        first_published_at=next((_time(piece.began_at) for piece in pieces if piece.count), None),
        last_published_at=_last_published_at(snapshot),
        topics=_count_topics(snapshot),
        damage=snapshot.damage,
        notes=tuple(_notes(snapshot)),
        holds=tuple(_holds(snapshot)),
        sessions=_sessions(snapshot),
        retained=sum(1 for _ in snapshot.records(RETAINED)),
    )


def _disk_bytes(snapshot: Snapshot) -> int:
    total = 0
    for file in (snapshot.store.path / DATABASE_FOLDER).iterdir():
        with suppress(FileNotFoundError):  # a running server removes files
            total += file.stat().st_size
    return total


def _last_published_at(snapshot: Snapshot) -> datetime | None:
    newest = next((piece for piece in reversed(snapshot.pieces()) if piece.count), None)
    if newest is None:
        return None
    runs = snapshot.reader.runs(newest.first - 1, snapshot.last_offset, maxsize, None).runs
    return _time(max(run.published_at for run in runs)) if runs else None


def _count_topics(snapshot: Snapshot) -> int | None:
    """Topics with a sequence, including those whose messages were all removed."""
    reader, frames = snapshot.reader, snapshot.index.unsealed(maxsize)
    unsealed = reader.topics_between(frames[0].first - 1, snapshot.last_offset) if frames else ()
    topics = {topic for _, extents in unsealed for topic in extents}
    try:
        return _count_sealed(snapshot) + sum(1 for topic in topics if not reader.last_sequence(topic))
    except DamagedData:
        return None


def _count_sealed(snapshot: Snapshot) -> int:
    count, place = 0, _AFTER_ALL_TOPICS
    while (entry := snapshot.store.last_before(SEQUENCES, place)) is not None:
        count += 1
        place = entry[0][:-_SEQUENCE_BYTES] + b"\0"  # before all keys of this topic
    return count


def _notes(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.opening.salvage is not None:
        words = database_error_text(snapshot.opening.salvage.words, snapshot.store.path)
        yield f"the database is damaged ({words}); this is what can be read of it"
    if snapshot.is_state_behind:
        yield "changes of sessions are lost"


def _holds(snapshot: Snapshot) -> Iterator[Held]:
    for key, value in snapshot.records(HOLDS):
        with suppress(MsgspecError):
            record = msgspec.msgpack.decode(value, type=HoldRecord)
            yield Held(key.decode(errors="replace"), record.owner, record.offset, _time(record.lapses_at))


def _sessions(snapshot: Snapshot) -> Sessions:
    total = absent = 0
    for _, value in snapshot.records(SESSIONS):
        total += 1
        with suppress(MsgspecError):
            absent += msgspec.msgpack.decode(value, type=SessionRecord).left_at is not None
    positions: list[int] = []
    for _, value in snapshot.records(BEHIND):
        with suppress(MsgspecError):
            positions.append(msgspec.msgpack.decode(value, type=BehindRecord).position)
    return Sessions(total, absent, len(positions), min(positions, default=None))


def _time(wall_us: int) -> datetime:
    seconds, microseconds = divmod(wall_us, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)
