"""A whole data directory as it is at one moment, written anew somewhere else.

What is read is one state of the database: RocksDB shows who follows another process nothing newer until it is
asked to catch up. A commit is there as a whole or not at all, so messages and sessions agree, and every
checksum has been looked at. The copy is the same log, with the same id, but it goes another way from here on:
so it begins an epoch that the original does not have, and a reader that comes with a cursor from after the
copy was made is told that what it saw is gone.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from secrets import token_hex

from msgspec import Struct, msgpack

from penstock.storage.disk.database import Database, Operation
from penstock.storage.disk.failures import DamagedData, unavailable
from penstock.storage.disk.header import make_header, sync_folder, write_header
from penstock.storage.disk.layout import (
    DATABASE_FOLDER,
    FAMILIES,
    HEADER_FILE,
    MARK_FILE,
    STATE,
    state_key,
)
from penstock.storage.disk.log import EpochRecord
from penstock.storage.disk.mark import Mark
from penstock.storage.disk.store import Store
from penstock.storage.disk.survey import EPOCHS

_WRITE_BYTES = 1 << 20
_FLUSH_BYTES = 8 << 20
"""Less than a write buffer holds, so that RocksDB never has to tell us to wait."""


class Ending(Struct, frozen=True):
    """How far a log is that is to be copied."""

    last_offset: int
    last_commit: int
    epoch: int


def epoch_of_copy(epoch: int, wall_us: int) -> int:
    """The epoch that a copy begins: none that the original or another copy will ever take.

    They rise by one with each start, and no server starts once a second for long. So a copy has the number of
    the second it is made in, counted from 1970: a cursor has room for it until 2106.
    """
    return max(epoch + 1, wall_us // 1_000_000)


def copy_store(
    store: Store,
    target: Path,
    ending: Ending,
    *,
    on_damage: Callable[[DamagedData], None],
    advance: Callable[[int], None] = lambda _: None,
) -> None:
    """Write everything that can be read into a new data directory, which appears when it is complete.

    Args:
        ending: of the state that the store shows; the epoch is the one that the copy begins.
        on_damage: told what had to be left out.
        advance: told how many bytes were copied so far.

    Raises:
        StorageUnavailable: there is no room, or a disk fails.
        OSError: the target cannot be made.
    """
    with _appearing(target) as draft:
        (draft / DATABASE_FOLDER).mkdir(mode=0o700)  # payloads and sessions are nobody else's
        _fill(store, draft / DATABASE_FOLDER, ending, on_damage, advance)
        _write_mark(draft, ending)
        write_header(draft, make_header(store.log_id))


@contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A folder to fill, which becomes the target if all goes well.

    A target that is there may be where a disk is mounted, and is kept: what is in the folder moves into it.
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
    """Move a data directory; without its header, which comes last, no server takes it for one."""
    for name in (DATABASE_FOLDER, MARK_FILE, HEADER_FILE):
        sync_folder(target)
        (draft / name).rename(target / name)
    sync_folder(target)


def _fill(
    store: Store,
    folder: Path,
    ending: Ending,
    on_damage: Callable[[DamagedData], None],
    advance: Callable[[int], None],
) -> None:
    try:
        database = Database(folder, store.log_id)
        try:
            _copy_entries(database, _operations(store, ending, on_damage), advance)
            database.flush()
        finally:
            database.close()
    except Exception as error:
        if type(error) is not Exception:  # RocksDB's have no type
            raise
        words = str(error)
    else:
        return
    raise unavailable(words)


def _operations(
    store: Store, ending: Ending, on_damage: Callable[[DamagedData], None]
) -> Iterator[Operation]:
    """Everything that the copy is to have, in the order of its keys but for the last one."""
    for family in FAMILIES:
        entries = store.scan_around(family, on_damage=lambda error, _: on_damage(error))
        yield from ((family, key, value, None) for key, value in entries)
    began = msgpack.encode(EpochRecord(ending.last_offset + 1))
    yield STATE, state_key(EPOCHS, str(ending.epoch)), began, None


def _copy_entries(
    database: Database, operations: Iterator[Operation], advance: Callable[[int], None]
) -> None:
    total = flushed = 0
    for operation in operations:
        together, size = _some(operation, operations)
        database.write(together)
        total += size
        if total - flushed >= _FLUSH_BYTES:
            database.flush()
            flushed = total
        advance(total)


def _some(first: Operation, operations: Iterator[Operation]) -> tuple[list[Operation], int]:
    """As many as are written together, and their size."""
    together: list[Operation] = []
    size = 0
    for operation in chain((first,), operations):
        together.append(operation)
        size += len(operation[1]) + len(operation[2] or b"")
        if size >= _WRITE_BYTES:
            break
    return together, size


def _write_mark(path: Path, ending: Ending) -> None:
    mark = Mark.open(path)
    try:
        mark.epoch = ending.epoch
        mark.write(ending.last_offset, ending.last_commit)
    finally:
        mark.close()
    with (path / MARK_FILE).open("rb") as file:
        os.fsync(file.fileno())
