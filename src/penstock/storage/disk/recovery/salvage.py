"""Salvage of a damaged database: opens whatever is readable, and never refuses.

The damaged folder is not changed. Each method is tried on a copy, the least lossy first; the first copy that
opens replaces the folder, which is kept aside. The survey finds lost messages by their offsets and the mark.
Session changes have no offsets: they may be missing without a trace, which the report says.

The write-ahead log and the manifest are journals: blocks of records, each with a header of length and kind.
Some kinds belong to recycled journals, which this database never has, and RocksDB rereads such a header
endlessly. One flipped bit or a few missing bytes can produce one, and then opening never ends. In a copy the
header gets an ordinary kind, which does not match its checksum: RocksDB skips the rest of the block, as with
any damage, and continues with the next. All other damage is left to RocksDB.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from struct import Struct as Layout

from penstock.storage.disk.rocksdb.database import Database, Recovery, repair
from penstock.storage.disk.rocksdb.errors import (
    DamagedData,
    Salvage,
    SalvageMethod,
    StorageFull,
    is_damage,
    next_readable,
    unavailable,
)
from penstock.storage.disk.rocksdb.layout import DATABASE_FOLDER, FAMILIES, sync_folder

_BLOCK_BYTES = 32 * 1024
_PIECE_BYTES = 64 * _BLOCK_BYTES
_HEADER = Layout("<IHB")  # checksum, length, kind
_KIND_PLACE = 6
_ORDINARY = frozenset((1, 2, 3, 4))
_TRAPS = frozenset((5, 6, 7, 8, 11))
_HARMLESS = b"\1"
_DRAFT = ".draft"
_COPY = ".copy"
_ASIDE = "-damaged-"
_NOT_DATA = ("LOCK", "LOG", "LOG.old", "lost")


def find_endless_journal(folder: Path) -> Path | None:
    """A journal in the folder on which RocksDB would loop forever; None if there is none."""
    for path in _journals(folder):
        with suppress(OSError):  # removed meanwhile, or RocksDB reports the error
            if any(True for _ in _traps_of(path)):
                return path
    return None


def defuse_journals(folder: Path) -> None:
    """Overwrite the endless headers in all journals of a folder."""
    for path in _journals(folder):
        traps = list(_traps_of(path))
        if traps:
            with path.open("r+b") as file:
                for place in traps:
                    file.seek(place)
                    file.write(_HARMLESS)


def _journals(folder: Path) -> list[Path]:
    return [*folder.glob("*.log"), *folder.glob("MANIFEST-*")]


def _traps_of(path: Path) -> Iterator[int]:
    """File positions of the kind bytes of endless headers."""
    with path.open("rb") as file:
        start = 0
        while data := file.read(_PIECE_BYTES):
            yield from (start + place for place in _traps_in(data))
            start += len(data)


def _traps_in(data: bytes) -> Iterator[int]:
    for block in range(0, len(data), _BLOCK_BYTES):
        place, last = block, min(block + _BLOCK_BYTES, len(data)) - _HEADER.size
        while place <= last:
            _, length, kind = _HEADER.unpack_from(data, place)
            if kind not in _ORDINARY:  # RocksDB skips the rest of this block
                if kind in _TRAPS:
                    yield place + _KIND_PLACE
                break
            place += _HEADER.size + length


def open_database(folder: Path, log_id: str, *, is_strict: bool = True) -> tuple[Database, Salvage | None]:
    """Open a database, salvage it if it is damaged, create it if there is none.

    Raises:
        StorageUnavailable: the disk is full, or fails.
    """
    _finish_exchange(folder)
    endless = find_endless_journal(folder)
    if endless is None:
        try:
            return Database(folder, log_id, may_create=not _has_data(folder), is_strict=is_strict), None
        except Exception as error:
            words = str(error)
        if not is_damage(words):
            raise unavailable(words)
    else:
        words = f"Corruption: {endless.name} has a header on which RocksDB would loop forever"
    salvage = _salvage(folder, log_id, words)
    return Database(folder, log_id, may_create=False), salvage


def rebuild(folder: Path, log_id: str, words: str) -> Salvage:
    """Replace a database with damaged tables by a copy of everything readable.

    It would open as it is, but RocksDB refuses writes as soon as compaction meets the damage.

    Raises:
        StorageFull: no room for the copy.
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
    return _exchange(folder, SalvageMethod.COPIED, words)


def copy_files(folder: Path, copy: Path, *, as_symlinks: bool = False) -> None:
    """Copy the files of a database, with endless journals defused. Tables never change: they are linked."""
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for path in folder.iterdir():
        if path.name.startswith(_NOT_DATA) or path.is_dir():
            continue
        if path.suffix == ".sst":
            _link(path, copy / path.name, as_symlinks)
        else:
            shutil.copyfile(path, copy / path.name)
    defuse_journals(copy)


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
    """Copy all entries; RocksDB rejects a table, but it may be readable."""
    source = Database(draft, log_id, may_create=False, is_strict=False)
    if _replace_by_copy(draft, source, log_id):
        raise DamagedData(DATABASE_FOLDER, b"", "some entries cannot be read")


def _replace_by_copy(draft: Path, source: Database, log_id: str) -> int:
    """Replace a database by a copy of its readable entries; return how many damaged places were skipped."""
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


_WAYS: tuple[tuple[SalvageMethod, Callable[[Path, str], None]], ...] = (
    (SalvageMethod.SKIPPED, partial(_recovered, recovery=Recovery.SKIPPING)),
    (SalvageMethod.CUT, partial(_recovered, recovery=Recovery.POINT_IN_TIME)),
    (SalvageMethod.COPIED, _copied),
    (SalvageMethod.REPAIRED, _repaired),
    (SalvageMethod.EMPTY, _empty),
)


def _exchange(folder: Path, way: SalvageMethod, words: str) -> Salvage:
    aside = _beside(folder, time.strftime(f"{_ASIDE}%Y%m%dT%H%M%S"))
    while aside.exists():
        aside = _beside(aside, "-again")
    folder.rename(aside)
    _beside(folder, _DRAFT).rename(folder)  # after a kill before this line, `_finish_exchange` does it
    sync_folder(folder.parent)
    return Salvage(way, words, aside)


def _finish_exchange(folder: Path) -> None:
    """Complete an exchange that a kill interrupted, and remove leftovers."""
    draft = _beside(folder, _DRAFT)
    if draft.exists() and not folder.exists():
        draft.rename(folder)
        sync_folder(folder.parent)
    for leftover in (draft, _beside(draft, _COPY)):
        shutil.rmtree(leftover, ignore_errors=True)


def _has_data(folder: Path) -> bool:
    """The folder has data. Without CURRENT RocksDB would take it for new and empty it."""
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
