"""Opening a damaged database: whatever is left of it, and never a refusal.

The damaged folder is not touched. Each way is tried on a copy, the least lossy first, and the first copy that
opens takes the folder's place, which is kept aside. What was lost shows when offsets are walked and compared
with the mark. Changes of sessions have no offsets: they may be missing without a trace, and it is said so.
"""

import os
import shutil
import time
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path

from msgspec import Struct

from penstock.storage.disk.around import next_readable
from penstock.storage.disk.database import Database, Recovery, repair
from penstock.storage.disk.failures import DamagedData, StorageFull, is_damage, unavailable
from penstock.storage.disk.header import sync_folder
from penstock.storage.disk.journal import disarm, find_trap
from penstock.storage.disk.layout import DATABASE_FOLDER, FAMILIES

_DRAFT = ".draft"
_COPY = ".copy"
_ASIDE = "-damaged-"
_NOT_DATA = ("LOCK", "LOG", "LOG.old", "lost")


class Way(StrEnum):
    """How a damaged database was opened."""

    SKIPPED = "skipped"
    """Damaged records of the write-ahead log were left out."""
    CUT = "cut"
    """The write-ahead log was cut where it is damaged."""
    COPIED = "copied"
    """Everything that can be read was copied into a new database."""
    REPAIRED = "repaired"
    """The list of tables was made anew; what was in damaged ones is lost, or as it was some time before."""
    EMPTY = "empty"
    """Nothing could be read."""


class Salvage(Struct, frozen=True):
    """What was done to open a damaged database. Changes of sessions may be lost."""

    way: Way
    words: str
    """What RocksDB said."""
    aside: Path
    """Where the damaged one is now."""

    @property
    def note(self) -> str:
        """What the operator should know, in a sentence."""
        return (
            f"the database was damaged ({self.words}) and is {self.way} now, "
            f"changes of sessions may be lost; the damaged one is kept in {self.aside}"
        )


def open_database(folder: Path, log_id: str, *, is_strict: bool = True) -> tuple[Database, Salvage | None]:
    """Open a database, salvaged if need be; create it if there is none.

    Raises:
        StorageUnavailable: the disk is full, or it fails.
    """
    _tidy(folder)
    trap = find_trap(folder)
    if trap is None:
        try:
            return Database(folder, log_id, may_create=not _has_data(folder), is_strict=is_strict), None
        except Exception as error:
            words = str(error)
        if not is_damage(words):
            raise unavailable(words)
    else:
        words = f"Corruption: {trap.name} has a header that would not let RocksDB go"
    salvage = _salvage(folder, log_id, words)
    return Database(folder, log_id, may_create=False), salvage


def rebuild(folder: Path, log_id: str, words: str) -> Salvage:
    """Replace a database that has damaged tables by one that has everything that can be read.

    It would open as it is; but as soon as compaction meets the damage, RocksDB takes no more writes.

    Raises:
        StorageFull: there is no room for the copy.
    """
    draft = _beside(folder, _DRAFT)
    try:
        copy_files(folder, draft)
        try:
            source = Database(draft, log_id, may_create=False)
        except Exception:
            _repaired(draft, log_id)
            source = Database(draft, log_id, may_create=False)
        _replace_by_copy(draft, source, log_id)
    except Exception as error:
        raise unavailable(str(error)) from None
    return _exchange(folder, Way.COPIED, words)


def copy_files(folder: Path, copy: Path, *, as_symlinks: bool = False) -> None:
    """Copy the files of a database, without what would stop RocksDB. Tables never change: they are linked."""
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for path in folder.iterdir():
        if path.name.startswith(_NOT_DATA) or path.is_dir():
            continue
        if path.suffix == ".sst":
            _link(path, copy / path.name, as_symlinks)
        else:
            shutil.copyfile(path, copy / path.name)
    disarm(copy)


def _salvage(folder: Path, log_id: str, words: str) -> Salvage:
    draft = _beside(folder, _DRAFT)
    for way, attempt in _WAYS:
        try:
            copy_files(folder, draft)
            attempt(draft, log_id)
        except Exception as error:
            refusal = unavailable(str(error))
            if isinstance(refusal, StorageFull):
                raise refusal from None
        else:
            return _exchange(folder, way, words)
    raise unavailable(words)


def _recovered(draft: Path, log_id: str, recovery: Recovery) -> None:
    Database(draft, log_id, may_create=False, recovery=recovery).close()


def _copied(draft: Path, log_id: str) -> None:
    """RocksDB finds fault with a table that can be read all the same."""
    source = Database(draft, log_id, may_create=False, is_strict=False)
    if _replace_by_copy(draft, source, log_id):
        raise DamagedData(DATABASE_FOLDER, b"", "not everything can be read")


def _replace_by_copy(draft: Path, source: Database, log_id: str) -> int:
    """Put what can be read of a database in its place; how many times something had to be left out."""
    copy = _beside(draft, _COPY)
    shutil.rmtree(copy, ignore_errors=True)
    try:
        target = Database(copy, log_id)
        try:
            damaged = sum(_copy_family(source, target, family) for family in FAMILIES)
            target.flush()
        finally:
            target.close()
    finally:
        source.close()
    shutil.rmtree(draft)
    copy.rename(draft)
    return damaged


def _copy_family(source: Database, target: Database, family: str) -> int:
    place: bytes | None = b""
    damaged = 0
    while place is not None:
        chunk = source.chunk(family, place, None)
        target.write([(family, key, value, None) for key, value in chunk.entries])
        if chunk.entries:
            place = chunk.entries[-1][0] + b"\0"
        if chunk.error is not None:
            damaged += 1
            place = next_readable(partial(source.can_seek, family), place)
        elif chunk.is_last:
            return damaged
    return damaged


def _repaired(draft: Path, log_id: str) -> None:
    repair(draft)
    Database(draft, log_id, may_create=False).close()


def _empty(draft: Path, log_id: str) -> None:
    shutil.rmtree(draft)
    Database(draft, log_id).close()


_WAYS: tuple[tuple[Way, Callable[[Path, str], None]], ...] = (
    (Way.SKIPPED, partial(_recovered, recovery=Recovery.SKIPPING)),
    (Way.CUT, partial(_recovered, recovery=Recovery.POINT_IN_TIME)),
    (Way.COPIED, _copied),
    (Way.REPAIRED, _repaired),
    (Way.EMPTY, _empty),
)


def _exchange(folder: Path, way: Way, words: str) -> Salvage:
    aside = _beside(folder, time.strftime(f"{_ASIDE}%Y%m%dT%H%M%S"))
    while aside.exists():
        aside = _beside(aside, "-again")
    folder.rename(aside)
    _beside(folder, _DRAFT).rename(folder)  # if we are killed before this, `_tidy` does it
    sync_folder(folder.parent)
    return Salvage(way, words, aside)


def _tidy(folder: Path) -> None:
    """Finish or forget what a process was doing here when it was killed."""
    draft = _beside(folder, _DRAFT)
    if draft.exists() and not folder.exists():
        draft.rename(folder)
    for leftover in (draft, _beside(draft, _COPY)):
        shutil.rmtree(leftover, ignore_errors=True)


def _has_data(folder: Path) -> bool:
    """Without CURRENT RocksDB would take the folder for a new one, and remove what is in it."""
    return folder.exists() and any(path.suffix in {".sst", ".log"} for path in folder.iterdir())


def _link(path: Path, link: Path, as_symlink: bool) -> None:
    if as_symlink or path.is_symlink():
        link.symlink_to(path.resolve())
        return
    try:
        os.link(path, link)
    except OSError:
        shutil.copyfile(path, link)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
