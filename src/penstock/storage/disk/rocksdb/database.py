"""RocksDB wrapper: the options, and the calls that are safe to make.

A `Database` is one opening of a folder. No object of RocksDB may outlive `close`, or this process could not
open the folder again: so no handle and no iterator leaves this module, not even in the frames of a traceback.
Errors are raised as RocksDB words them; `store.py` translates them.

RocksDB does not always recover from a full disk. So `Space` refuses commits while there is no room to move
the write-ahead log into tables.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from msgspec import Struct
from rocksdict import (
    AccessType,
    ColumnFamily,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from penstock.storage.disk.rocksdb.errors import StorageFull, is_stall
from penstock.storage.disk.rocksdb.file_watch import Needed
from penstock.storage.disk.rocksdb.layout import FAMILIES

_ID_KEY = b"\0"
"""Sorts before all other keys; its value is the log id. Each family has it from its creation on, and so at
least one table file: from these a repair without a manifest learns which families exist."""
_FIRST_KEY = b"\0\0"

_STALL_PATIENCE_S = 30.0  # publishers are held back meanwhile
_STALL_PAUSE_S = 0.005
_LARGEST_BUFFER = 16 << 20
_SMALLEST_BUFFER = 64 << 10
_CHUNK_ENTRIES = 1_000
_STEPS = 8
"""Neighbours that are looked at before a key is searched for."""
_HIGHEST = b"\xff" * 9
_CHUNK_BYTES = 1 << 20

Entry = tuple[bytes, bytes]
Operation = tuple[str, bytes, bytes | None, bytes | None]
"""Family, key, value, stop. Puts a value; without one deletes the key, or all keys before the stop."""
MIB = 1024 * 1024


class Recovery(StrEnum):
    """Tolerance for damage in the write-ahead log: the recovery modes of RocksDB."""

    TOLERANT = "tolerate_corrupted_tail_records"
    SKIPPING = "skip_any_corrupted_record"
    POINT_IN_TIME = "point_in_time"


class Sizes(Struct, frozen=True):
    """Buffer sizes for RocksDB, small on a small file system."""

    buffer_bytes: int
    wal_bytes: int
    slack_bytes: int
    """For other files: manifests, options, RocksDB's own log."""

    @classmethod
    def of(cls, path: Path) -> "Sizes":
        """Sizes for the file system of a path."""
        found = os.statvfs(path)
        total = found.f_blocks * found.f_frsize
        return cls(
            max(_SMALLEST_BUFFER, min(_LARGEST_BUFFER, total // 32)),
            max(2 * _SMALLEST_BUFFER, min(16 * _LARGEST_BUFFER, total // 16)),
            min(4 << 20, total // 16),
        )


class Chunk(Struct, frozen=True):
    """A part of a scan."""

    entries: list[Entry]
    is_last: bool
    error: str | None = None
    """The error that ended the scan after these entries."""


class Database:
    """One opening of a RocksDB folder."""

    def __init__(
        self,
        folder: Path,
        log_id: str,
        *,
        may_create: bool = True,
        recovery: Recovery = Recovery.TOLERANT,
        is_strict: bool = True,
        secondary_folder: Path | None = None,
    ) -> None:
        """Open, or create.

        Args:
            may_create: create a database if the folder looks new. A damaged one may look new too, and
                would be emptied.
            is_strict: refuse a database that lacks a table, and stop writes when compaction meets damage.
            secondary_folder: read only, as a RocksDB secondary that has its own files there; another process
                may be writing.
        """
        self._new_log_id = log_id
        options = _options(Sizes.of(folder.parent), recovery, is_strict)
        options.create_if_missing(may_create)
        is_new = not (folder / "CURRENT").exists()
        self._database: Rdict | None = Rdict(
            str(folder),
            options,
            column_families=dict.fromkeys(FAMILIES, options),
            access_type=AccessType.secondary(str(secondary_folder))
            if secondary_folder
            else AccessType.read_write(),
        )
        self._families: dict[str, Rdict] = {name: self._database.get_column_family(name) for name in FAMILIES}
        self._handles: dict[str, ColumnFamily] = {
            name: self._database.get_column_family_handle(name) for name in FAMILIES
        }
        self._write_options = WriteOptions()
        self._write_options.no_slowdown = True
        if is_new and secondary_folder is None:
            self.write([(family, _ID_KEY, log_id.encode(), None) for family in FAMILIES])
            self.flush()

    def write(self, operations: Sequence[Operation]) -> None:
        """Write atomically, in this order. Not on disk before `sync`."""
        patience_ends = time.monotonic() + _STALL_PATIENCE_S
        while not self._has_written(self._batch(operations), is_patient=time.monotonic() < patience_ends):
            time.sleep(_STALL_PAUSE_S)  # RocksDB would block with the interpreter lock held

    def _has_written(self, batch: WriteBatch, *, is_patient: bool) -> bool:
        try:
            self._opened.write(batch, self._write_options)
        except Exception as error:
            if is_patient and is_stall(str(error)):
                return False
            raise
        return True

    def _batch(self, operations: Sequence[Operation]) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        handles = self._handles
        for family, key, value, stop in operations:
            if value is not None:
                batch.put(key, value, handles[family])
            elif stop is not None:
                batch.delete_range(key, stop, handles[family])
            else:
                batch.delete(key, handles[family])
        return batch

    def sync(self, is_durable: bool) -> None:
        """Flush the write-ahead log to the operating system, or sync it to the disk."""
        self._opened.flush_wal(is_durable)

    def get(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """Values by key. Releases the interpreter lock."""
        values: list[bytes | None] = self._families[family].get(keys)  # type: ignore[assignment, arg-type]
        return values

    def chunk(
        self,
        family: str,
        start: bytes,
        stop: bytes | None,
        *,
        with_values: bool = True,
        limit: int = _CHUNK_ENTRIES,
    ) -> Chunk:
        """Entries from `start` to before `stop`, up to the size of a chunk."""
        entries: list[Entry] = []
        size = 0
        iterator = self._iterate(family, stop)
        try:
            iterator.seek(max(start, _FIRST_KEY))
            while iterator.valid():
                value = iterator.value() if with_values else b""
                entries.append((iterator.key(), value))
                size += len(value)
                if len(entries) == limit or size >= _CHUNK_BYTES:
                    return Chunk(entries, is_last=False)
                iterator.next()
            iterator.status()
        except Exception as error:
            return Chunk(entries, is_last=True, error=str(error))
        finally:
            del iterator
        return Chunk(entries, is_last=True)

    def can_seek(self, family: str, key: bytes) -> bool:
        """A scan can start at this key, or finds no entry without an error."""
        chunk = self.chunk(family, key, None, with_values=False, limit=1)
        return chunk.error is None

    def last_before(self, family: str, key: bytes) -> Entry | None:
        """The entry with the greatest key up to this one."""
        iterator = self._iterate(family, None)
        try:
            iterator.seek_for_prev(key)
            if iterator.valid() and iterator.key() >= _FIRST_KEY:
                return iterator.key(), iterator.value()
            iterator.status()
            return None
        finally:
            del iterator

    def last_values(self, family: str, prefixes: Sequence[bytes]) -> dict[bytes, bytes]:
        """The value of the greatest key with each prefix, where there is one.

        Args:
            prefixes: sorted, and none begins with another. Up to eight bytes follow them in a key.
        """
        found: dict[bytes, bytes] = {}
        iterator = self._iterate(family, None)
        try:
            iterator.seek(max(prefixes[0], _FIRST_KEY))
            key = iterator.key() if iterator.valid() else None
            for prefix in prefixes:
                steps = 0
                while key is not None and key < prefix:  # most are near, and a step is cheaper than a search
                    steps += 1
                    iterator.next() if steps < _STEPS else iterator.seek(prefix)
                    key = iterator.key() if iterator.valid() else None
                steps = 0
                while key is not None and key.startswith(prefix):
                    steps += 1
                    if steps == _STEPS:
                        iterator.seek_for_prev(prefix + _HIGHEST)
                    found[prefix] = iterator.value()
                    iterator.next()
                    key = iterator.key() if iterator.valid() else None
                if key is None:
                    break
            iterator.status()
        finally:
            del iterator
        return found

    def compact(self, family: str, stop: bytes | None) -> None:
        """Free the space of entries deleted before `stop`."""
        self._families[family].compact_range(None, stop)

    def flush(self, families: Sequence[str] = FAMILIES) -> None:
        """Flush memory tables into table files."""
        for family in families:
            self._families[family].flush()

    def needed_files(self) -> Needed:
        """Table and write-ahead log files that the next start needs."""
        tables = frozenset(str(file["name"]).lstrip("/") for file in self._opened.live_files())
        return Needed(tables, self._opened.property_int_value("rocksdb.min-log-number-to-keep") or 0)

    def catch_up(self) -> bool:
        """Catch up with the writing process; False if that needs a new opening."""
        self._opened.try_catch_up_with_primary()
        return True

    def close(self) -> None:
        """Close the database. RocksDB repeats an earlier error here, which is ignored."""
        database, self._database = self._database, None
        self._families.clear()
        self._handles.clear()
        if database is not None:
            with suppress(Exception):
                database.close()

    @property
    def log_id(self) -> str:
        """The log id that was given at creation."""
        for family in FAMILIES:
            with suppress(Exception):
                if value := self.get(family, [_ID_KEY])[0]:
                    return value.decode()
        return self._new_log_id

    @property
    def _opened(self) -> Rdict:
        assert self._database is not None
        return self._database

    def _iterate(self, family: str, stop: bytes | None) -> RdictIter:
        options = ReadOptions()
        if stop is not None:  # never set a lower bound: the binding takes it for the upper one
            options.set_iterate_upper_bound(stop)
        return self._families[family].iter(options)


def check(folder: Path) -> None:
    """Open read-only, to raise an error if the database is damaged; changes nothing.

    A secondary would not report missing tables: it shows the state before them.
    """
    options = _options(Sizes.of(folder.parent), Recovery.TOLERANT, is_strict=True)
    families = dict.fromkeys(FAMILIES, options)
    Rdict(str(folder), options, column_families=families, access_type=AccessType.read_only()).close()


def repair(folder: Path) -> None:
    """Rebuild the manifest from the existing tables and write-ahead log."""
    Rdict.repair(str(folder), _options(Sizes.of(folder.parent), Recovery.TOLERANT, is_strict=True))


def _options(sizes: Sizes, recovery: Recovery, is_strict: bool) -> Options:
    options = Options(raw_mode=True)
    options.create_missing_column_families(True)
    options.set_write_buffer_size(sizes.buffer_bytes)  # small: less write-ahead log to replay at start
    options.set_db_write_buffer_size(4 * sizes.buffer_bytes)  # of all families together
    options.set_max_total_wal_size(sizes.wal_bytes)
    options.set_manifest_preallocation_size(min(4 << 20, sizes.buffer_bytes))
    options.set_max_background_jobs(2)
    options.set_compression_type(DBCompressionType.none())  # sealed batches are compressed already
    options.set_max_log_file_size(sizes.slack_bytes)
    options.set_keep_log_file_num(3)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_paranoid_checks(is_strict)
    options.set_wal_recovery_mode(getattr(DBRecoveryMode, recovery)())
    return options


class Space:
    """Free space of a file system, and the reserve that the write-ahead log needs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes = Sizes.of(folder.parent)
        self._wal_bytes = 0
        self._new_bytes = 0
        self._is_short = False
        self.measure()

    def free_bytes(self) -> int:
        """Bytes that are free for this process."""
        found = os.statvfs(self._folder.parent)
        return found.f_bavail * found.f_frsize

    @property
    def reserve_bytes(self) -> int:
        """Bytes that must stay free."""
        return self._wal_bytes + self._new_bytes + self._sizes.buffer_bytes + self._sizes.slack_bytes

    def check(self) -> None:
        """Check that the reserve is free.

        Raises:
            StorageFull: less than the reserve is free.
        """
        free, reserve = self.free_bytes(), self.reserve_bytes
        if self._is_short:
            reserve += reserve // 4  # hysteresis: RocksDB removes files all the time
        self._is_short = free < reserve
        if self._is_short:
            words = f"{free / MIB:.1f} MiB are free, {reserve / MIB:.1f} MiB must be free"
            raise StorageFull(f"the disk is full: {words} ({self._folder.parent})")

    def wrote(self, count: int) -> None:
        """Count bytes that were added to the write-ahead log."""
        self._new_bytes += count
        if self._new_bytes > self._sizes.buffer_bytes // 4:
            self.measure()

    def measure(self) -> None:
        """Measure the write-ahead log, which RocksDB shortens at any time."""
        total = 0
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(".log"):
                    with suppress(FileNotFoundError):  # removed meanwhile
                        total += entry.stat().st_size
        self._wal_bytes, self._new_bytes = total, 0
