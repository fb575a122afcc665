"""Backup of a data directory: a consistent copy of one moment, written to another folder.

The copy shows one state of the database: a follower sees nothing newer until it catches up. A commit is there
as a whole or not at all, so messages and sessions agree, and every checksum was checked. The copy is the same
log, with the same id, and diverges from the original. It therefore begins an epoch that the original does not
have: a reader with a cursor from after the backup gets a gap.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from secrets import token_hex

from msgspec import Struct, msgpack

from penstock.common.text import offsets_text
from penstock.core.durability.records import RETAINED, SESSIONS
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.recovery.survey import EPOCHS, EpochRecord
from penstock.storage.disk.rocksdb.database import Database, Operation
from penstock.storage.disk.rocksdb.errors import DamagedData, unavailable
from penstock.storage.disk.rocksdb.layout import (
    COMMIT_KEY,
    DATABASE_FOLDER,
    FAMILIES,
    HEADER_FILE,
    MARK_FILE,
    STATE,
    make_header,
    offset_of,
    state_key,
    sync_folder,
    write_header,
)
from penstock.storage.disk.rocksdb.store import Store
from penstock.storage.disk.snapshot import Snapshot, database_error_text
from penstock.storage.disk.verify import Advance, Progress, no_progress

_WRITE_BYTES = 1 << 20
_FLUSH_BYTES = 8 << 20
"""Less than a write buffer holds, so that RocksDB never stalls a write."""


class BackupReport(Struct, frozen=True):
    """Contents of a backup, and what is missing from it."""

    path: str
    log_id: str
    first_offset: int
    last_offset: int
    epoch: int
    """The epoch that the copy begins; a server that starts on it begins a later one."""
    messages: int
    sessions: int
    retained: int
    missing: tuple[str, ...]
    """Unreadable parts, in words; empty if the copy is complete."""


def write_backup(snapshot: Snapshot, target: Path, progress: Progress = no_progress) -> BackupReport:
    """Write the state of a snapshot into a new data directory.

    Raises:
        StorageUnavailable: the target cannot be written.
    """
    pieces = snapshot.index.after(0, len(snapshot.index))
    ending = _ending(snapshot)
    damage: list[DamagedData] = []
    with progress("copying", sum(piece.bytes for piece in pieces)) as advance:
        try:
            copy_store(snapshot.store, target, ending, on_damage=damage.append, advance=advance)
        except OSError as error:
            raise unavailable(f"{target}: {error.strerror}") from error
    return BackupReport(
        path=str(target),
        log_id=snapshot.log_id,
        first_offset=snapshot.first_offset,
        last_offset=ending.last_offset,
        epoch=ending.epoch,
        messages=sum(piece.count for piece in pieces),
        sessions=sum(1 for _ in snapshot.records(SESSIONS)),
        retained=sum(1 for _ in snapshot.records(RETAINED)),
        missing=tuple(_missing(snapshot, damage)),
    )


class Ending(Struct, frozen=True):
    """End of the log that is copied."""

    last_offset: int
    last_commit: int
    epoch: int


def epoch_of_copy(epoch: int, wall_us: int) -> int:
    """The epoch that a copy begins; neither the original nor another copy will ever use it.

    Epochs rise by one with each start, and no server starts once a second for long. A copy therefore takes
    the current second since 1970: a cursor has room for it until 2106.
    """
    return max(epoch + 1, wall_us // 1_000_000)


def copy_store(
    store: Store,
    target: Path,
    ending: Ending,
    *,
    on_damage: Callable[[DamagedData], None],
    advance: Advance = lambda _: None,
) -> None:
    """Write everything readable into a new data directory, which appears when it is complete.

    Args:
        ending: end of the state that the store shows; its epoch is the one that the copy begins.
        on_damage: called for each part that cannot be read.
        advance: called with the bytes copied so far.

    Raises:
        StorageUnavailable: the disk is full, or fails.
        OSError: the target cannot be created.
    """
    with _appearing(target) as draft:
        (draft / DATABASE_FOLDER).mkdir(mode=0o700)  # payloads and sessions are private
        _fill(store, draft / DATABASE_FOLDER, ending, on_damage, advance)
        _write_mark(draft, ending)
        write_header(draft, make_header(store.log_id))


@contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A draft folder, which becomes the target if the block succeeds.

    An existing target may be a mount point, so it is kept: the contents of the draft move into it.
    """
    is_there = target.exists()
    draft = (target if is_there else target.parent) / f".{target.name}.{token_hex(4)}"
    draft.mkdir(mode=0o700)
    try:
        yield draft
        if is_there:
            _move(draft, target)
        else:
            draft.rename(target)
            sync_folder(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _move(draft: Path, target: Path) -> None:
    """Move a data directory; its header comes last, and without it no server starts on the folder."""
    for name in (DATABASE_FOLDER, MARK_FILE, HEADER_FILE):
        sync_folder(target)
        (draft / name).rename(target / name)
    sync_folder(target)


def _fill(
    store: Store,
    folder: Path,
    ending: Ending,
    on_damage: Callable[[DamagedData], None],
    advance: Advance,
) -> None:
    try:
        database = Database(folder, store.log_id)
        try:
            _copy_entries(database, _operations(store, ending, on_damage), advance)
            database.flush()
        finally:
            database.close()
    except Exception as error:
        if type(error) is not Exception:  # RocksDB raises plain Exception
            raise
        words = str(error)
    else:
        return
    raise unavailable(words)


def _operations(
    store: Store, ending: Ending, on_damage: Callable[[DamagedData], None]
) -> Iterator[Operation]:
    """Everything to copy, in key order except for the last one."""
    for family in FAMILIES:
        entries = store.scan_readable(family, on_damage=lambda error, _: on_damage(error))
        yield from ((family, key, value, None) for key, value in entries)
    began = msgpack.encode(EpochRecord(ending.last_offset + 1))
    yield STATE, state_key(EPOCHS, str(ending.epoch)), began, None


def _copy_entries(database: Database, operations: Iterator[Operation], advance: Advance) -> None:
    total = flushed = 0
    for operation in operations:
        together, size = _take_some(operation, operations)
        database.write(together)
        total += size
        if total - flushed >= _FLUSH_BYTES:
            database.flush()
            flushed = total
        advance(total)


def _take_some(first: Operation, operations: Iterator[Operation]) -> tuple[list[Operation], int]:
    """Operations to write together, and their size."""
    together: list[Operation] = []
    size = 0
    for operation in chain((first,), operations):
        together.append(operation)
        size += len(operation[1]) + len(operation[2] or b"")
        if size >= _WRITE_BYTES:
            break
    return together, size


def _write_mark(path: Path, ending: Ending) -> None:
    mark = DurableMark.open(path)
    try:
        mark.epoch = ending.epoch
        mark.write(ending.last_offset, ending.last_commit)
    finally:
        mark.close()
    with (path / MARK_FILE).open("rb") as file:
        os.fsync(file.fileno())


def _ending(snapshot: Snapshot) -> Ending:
    """The end of what is stored, whether the mark covers it or not: as after a crash."""
    offset, commit = (snapshot.mark.offset, snapshot.mark.commit) if snapshot.mark else (0, 0)
    stored = _stored_commit(snapshot)
    return Ending(
        last_offset=max(offset, snapshot.index.last_offset),
        last_commit=max(commit, stored),
        epoch=epoch_of_copy(snapshot.epoch, time.time_ns() // 1_000),
    )


def _stored_commit(snapshot: Snapshot) -> int:
    try:
        (value,) = snapshot.store.get(STATE, [COMMIT_KEY])
    except DamagedData:
        return 0
    return 0 if value is None else offset_of(value)


def _missing(snapshot: Snapshot, damage: list[DamagedData]) -> Iterator[str]:
    """Parts missing from the copy; losses from before the last start are not counted."""
    if snapshot.opening.salvage is not None:
        words = database_error_text(snapshot.opening.salvage.words, snapshot.store.path)
        yield f"the database is damaged ({words})"
    if snapshot.is_state_behind:
        yield "changes of sessions are lost"
    for gap in snapshot.damage:
        if not snapshot.was_lost_earlier(gap):
            yield f"{offsets_text(gap.first, gap.last)}: {gap.reason}"
    for error in damage:
        yield f"a part of the database cannot be read: {database_error_text(str(error), snapshot.store.path)}"
