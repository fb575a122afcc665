"""RocksDB as Penstock opens it: the options, and the calls that are safe to make.

A `Database` is one opening of a folder. Nothing that RocksDB handed out may outlive `close`, or the folder
could not be opened again by this process: so no handle and no iterator leaves this module, not even in the
frames of a traceback. Errors leave as RocksDB words them; `store.py` says what they mean.
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

from penstock.storage.disk.failures import is_stall
from penstock.storage.disk.layout import FAMILIES

_ID_KEY = b"\0"
"""Before every key of ours. Each family has it, and so has a table file from the first day on: that is how a
repair without a manifest learns which families there are. Its value is the log id."""
_FIRST_KEY = b"\0\0"

_STALL_PATIENCE_S = 1.0
_STALL_PAUSE_S = 0.005
_LARGEST_BUFFER = 16 << 20
_SMALLEST_BUFFER = 64 << 10
_CHUNK_ENTRIES = 1_000
_CHUNK_BYTES = 1 << 20

Entry = tuple[bytes, bytes]
Operation = tuple[str, bytes, bytes | None, bytes | None]
"""Family, key, value, stop. A value is put; without one the key is deleted, or all keys before the stop."""


class Recovery(StrEnum):
    """How much damage in the write-ahead log is put up with."""

    TOLERANT = "tolerate_corrupted_tail_records"
    SKIPPING = "skip_any_corrupted_record"
    POINT_IN_TIME = "point_in_time"


class Sizes(Struct, frozen=True):
    """What RocksDB may use of a file system; little where there is little."""

    buffer_bytes: int
    wal_bytes: int
    slack_bytes: int
    """For what it writes besides: manifests, options, its own log."""

    @classmethod
    def of(cls, path: Path) -> "Sizes":
        """Fit for the file system of a path."""
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
    """Why nothing can be read after these entries."""


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
            may_create: a folder that looks new is. A damaged one may look so too, and would be emptied.
            is_strict: refuse a database that lacks a table, and stop writing where compaction meets damage.
            secondary_folder: only read what another process may be writing, and keep notes of our own there.
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
        """Do all of this or nothing, in this order. It is not on disk before `sync`."""
        patience_ends = time.monotonic() + _STALL_PATIENCE_S
        while not self._has_written(self._batch(operations), is_patient=time.monotonic() < patience_ends):
            time.sleep(_STALL_PAUSE_S)  # RocksDB would wait by itself, and stop every other thread with us

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
        """Hand the write-ahead log to the operating system, or to the disk."""
        self._opened.flush_wal(is_durable)

    def get(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """Values by key; other threads run meanwhile."""
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
        """The entries from `start` on, before `stop`, as many as make a chunk."""
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
        """Whether a scan that starts here has a beginning, or finds that there is nothing."""
        chunk = self.chunk(family, key, None, with_values=False, limit=1)
        return chunk.error is None

    def last_before(self, family: str, key: bytes) -> Entry | None:
        """The entry with the greatest key that is not above this one."""
        iterator = self._iterate(family, None)
        try:
            iterator.seek_for_prev(key)
            if iterator.valid() and iterator.key() >= _FIRST_KEY:
                return iterator.key(), iterator.value()
            iterator.status()
            return None
        finally:
            del iterator

    def compact(self, family: str, stop: bytes | None) -> None:
        """Give back the space of what was deleted before `stop`."""
        self._families[family].compact_range(None, stop)

    def flush(self, families: Sequence[str] = FAMILIES) -> None:
        """Move everything into table files."""
        for family in families:
            self._families[family].flush()

    def catch_up(self) -> bool:
        """See what the process that writes has written since; False if it has to be opened anew for that."""
        self._opened.try_catch_up_with_primary()
        return True

    def close(self) -> None:
        """Let go of the folder; after an error RocksDB complains here once more, which tells nothing new."""
        database, self._database = self._database, None
        self._families.clear()
        self._handles.clear()
        if database is not None:
            with suppress(Exception):
                database.close()

    @property
    def log_id(self) -> str:
        """Which log this is; what was given at its creation."""
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
        if stop is not None:  # a lower bound must not be set: it is taken for the upper one
            options.set_iterate_upper_bound(stop)
        return self._families[family].iter(options)


def check(folder: Path) -> None:
    """Refuse a database that cannot be opened as it is, without changing it.

    Who follows another process would not be told of missing tables: it is shown what was before them.
    """
    options = _options(Sizes.of(folder.parent), Recovery.TOLERANT, is_strict=True)
    families = dict.fromkeys(FAMILIES, options)
    Rdict(str(folder), options, column_families=families, access_type=AccessType.read_only()).close()


def repair(folder: Path) -> None:
    """Make a manifest anew from the tables and the write-ahead log that are there."""
    Rdict.repair(str(folder), _options(Sizes.of(folder.parent), Recovery.TOLERANT, is_strict=True))


def _options(sizes: Sizes, recovery: Recovery, is_strict: bool) -> Options:
    options = Options(raw_mode=True)
    options.create_missing_column_families(True)
    options.set_write_buffer_size(sizes.buffer_bytes)  # small, so that a start has little to read again
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
