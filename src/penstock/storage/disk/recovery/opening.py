"""Opening a data directory: check, lock, open or salvage the database.

A server opens it for writing, with an exclusive lock. Tools open it read-only at any time, and write nothing
into it.
"""

import errno
import fcntl
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from tempfile import mkdtemp

from msgspec import Struct

from penstock.errors import InvalidConfig, PenstockError
from penstock.storage.disk.recovery.read_only import follow
from penstock.storage.disk.recovery.salvage import open_database, rebuild
from penstock.storage.disk.rocksdb.database import Database
from penstock.storage.disk.rocksdb.errors import Salvage, StorageFull
from penstock.storage.disk.rocksdb.layout import (
    DATABASE_FOLDER,
    HARMLESS,
    HEADER_FILE,
    LOCK_FILE,
    MARK_FILE,
    make_folder,
    make_header,
    read_header,
    sync_folder,
    write_header,
)
from penstock.storage.disk.rocksdb.store import Store

_OURS = {LOCK_FILE, MARK_FILE}
_LOCK_TRIES = 10
_LOCK_PAUSE_S = 0.03


class Opening(Struct, frozen=True):
    """Report of an opening."""

    is_new: bool
    is_header_restored: bool = False
    """The header was missing or damaged and has been restored."""
    salvage: Salvage | None = None
    """Set if the database was damaged. Session changes may be lost, which no offset shows."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the operator; empty if nothing was damaged."""
        notes: list[str] = []
        if self.is_header_restored:
            notes.append(f"{HEADER_FILE} was damaged and has been written again")
        if self.salvage is not None:
            notes.append(self.salvage.note)
        return tuple(notes)


def open_store(path: Path, *, read_only: bool = False) -> tuple[Store, Opening]:
    """Open a data directory; create it if it is missing, unless `read_only`.

    Raises:
        InvalidConfig: it is in use, not a data directory, or from a newer Penstock.
        StorageUnavailable: the disk is full, or fails.
    """
    return _open_to_read(path) if read_only else _open_to_write(path)


def _open_to_write(path: Path) -> tuple[Store, Opening]:
    try:
        make_folder(path)
        _refuse_foreign(path)
        lock = _lock(path)
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        return _open_locked(path, lock)
    except OSError as error:
        os.close(lock)
        raise _unusable(path, error) from None
    except BaseException:
        os.close(lock)
        raise


def _unusable(path: Path, error: OSError) -> PenstockError:
    if error.errno == errno.ENOSPC:
        return StorageFull(f"{path}: {error.strerror}")
    return InvalidConfig(f"data_dir: {path} cannot be used: {error.strerror}")


def _open_locked(path: Path, lock: int) -> tuple[Store, Opening]:
    folder = path / DATABASE_FOLDER
    is_new = not any((path / name).exists() for name in (HEADER_FILE, DATABASE_FOLDER, MARK_FILE))
    header = read_header(path)
    if is_new:
        header = make_header(token_hex(8))
        write_header(path, header)
    database, salvage = open_database(folder, header.log_id if header else token_hex(8))
    is_restored = header is None
    if header is None:
        header = make_header(database.log_id)
        write_header(path, header)
    log_id = header.log_id
    sync_folder(path)  # RocksDB syncs its files, and not the entry of their folder

    def open_again(is_damaged: bool) -> tuple[Database, Salvage | None]:
        return _open_again(folder, log_id, is_damaged)

    store = Store(path, log_id, database, open_again=open_again, on_close=lambda: os.close(lock))
    return store, Opening(is_new, is_restored, salvage)


def _open_again(folder: Path, log_id: str, is_damaged: bool) -> tuple[Database, Salvage | None]:
    if not is_damaged:
        return open_database(folder, log_id)
    try:
        rebuilt = rebuild(folder, log_id, "Corruption: met while writing")
    except StorageFull:  # no room for a copy: use the damaged database, without compaction
        return open_database(folder, log_id, is_strict=False)
    return open_database(folder, log_id)[0], rebuilt


def _open_to_read(path: Path) -> tuple[Store, Opening]:
    header = read_header(path)
    folder = path / DATABASE_FOLDER
    if not (folder / "CURRENT").exists() and header is None:
        raise InvalidConfig(f"data_dir: {path} is not a data directory")
    scratch = Path(mkdtemp(prefix="penstock-"))

    def remove_scratch() -> None:
        shutil.rmtree(scratch, ignore_errors=True)

    def open_again(_: bool = False) -> tuple[Database, Salvage | None]:
        return follow(folder, header.log_id if header else "", scratch, is_quiet=not is_served(path))

    try:
        database, salvage = open_again()
    except BaseException:
        remove_scratch()
        raise
    log_id = header.log_id if header else database.log_id

    store = Store(path, log_id, database, open_again=open_again, on_close=remove_scratch, is_read_only=True)
    return store, Opening(is_new=False, salvage=salvage)


def _refuse_foreign(path: Path) -> None:
    names = {entry.name for entry in path.iterdir()} - HARMLESS
    if HEADER_FILE in names or not names:
        return
    ours = {name for name in names if name in _OURS or name.startswith((HEADER_FILE, DATABASE_FOLDER))}
    if ours != names or LOCK_FILE not in names:  # the lock file is created first
        raise InvalidConfig(f"data_dir: {path} is not empty, and not a data directory")


def _lock(path: Path) -> int:
    descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    if not _can_lock(descriptor):
        owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise InvalidConfig(
            f"data_dir: {path} is in use by another process ({owner or 'unknown'}). "
            "Stop that, or choose another directory: --data-dir, or the setting data_dir, takes one."
        )
    with suppress(OSError):  # only a hint for operators
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _can_lock(descriptor: int) -> bool:
    for _ in range(_LOCK_TRIES):  # a call of `is_served` may have the lock for a moment
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
        else:
            return True
    return False


def is_served(path: Path) -> bool:
    """A process has the data directory open for writing."""
    try:
        descriptor = os.open(path / LOCK_FILE, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)  # also releases the lock, if it was free
    return False
