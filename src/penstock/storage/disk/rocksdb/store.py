"""Thread-safe store over the database, with recovery from write errors.

After a write error nothing more is written until `reopen`: after a failed fsync the state of the disk is
unknown, and a second fsync proves nothing. Reads continue meanwhile.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from penstock.errors import StorageUnavailable
from penstock.storage.disk.rocksdb.database import Database, Entry, Operation, Space
from penstock.storage.disk.rocksdb.errors import (
    DamagedData,
    Salvage,
    is_damage,
    is_stall,
    next_readable,
    unavailable,
)
from penstock.storage.disk.rocksdb.file_watch import FileWatch
from penstock.storage.disk.rocksdb.layout import DATABASE_FOLDER
from penstock.storage.disk.rocksdb.read_write_lock import ReadWriteLock


class Changes:
    """Write batch: applied atomically, in the order of collection. For one write only."""

    __slots__ = ("bytes", "operations")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.bytes = 0

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Set a key."""
        self.operations.append((family, key, value, None))
        self.bytes += len(key) + len(value)

    def delete(self, family: str, key: bytes) -> None:
        """Remove a key if it exists."""
        self.operations.append((family, key, None, None))
        self.bytes += len(key)

    def delete_range(self, family: str, start: bytes, stop: bytes) -> None:
        """Remove all keys from `start` to before `stop`."""
        self.operations.append((family, start, None, stop))
        self.bytes += len(start) + len(stop)

    def __len__(self) -> int:
        return len(self.operations)


class Store:
    """Database of a data directory. Thread-safe; `reopen` waits for running calls."""

    def __init__(
        self,
        path: Path,
        log_id: str,
        database: Database,
        *,
        open_again: Callable[[bool], tuple[Database, Salvage | None]],
        on_close: Callable[[], None],
        is_read_only: bool = False,
    ) -> None:
        """Take over an opened database.

        Args:
            open_again: opens it again; its argument is True if a write met damage.
            on_close: releases the directory.
        """
        self.path = path
        self.log_id = log_id
        self.is_read_only = is_read_only
        self.needs_reopen = False
        """Nothing can be written before `reopen`."""
        self.salvage: Salvage | None = None
        """Report of the last `reopen`, if it had to salvage the database."""
        self._database: Database | None = database
        self._open_again = open_again
        self._on_close = on_close
        self._is_damaged = False
        self._is_closed = False
        self._lock = ReadWriteLock()
        self._space = Space(path / DATABASE_FOLDER)
        self._files = FileWatch(path / DATABASE_FOLDER)

    @property
    def is_reopening(self) -> bool:
        """The database is being reopened: calls block until it is done."""
        return self._lock.is_exclusive

    def write(self, changes: Changes, *, sync: bool) -> None:
        """Write atomically; with `sync` the changes are on the disk when this returns.

        Raises:
            StorageFull: the disk is full. Unless `needs_reopen` is set, nothing was written.
            StorageUnavailable: the write failed, or its outcome is unknown.
        """
        with self._using() as database:
            if self.is_read_only:
                raise StorageUnavailable("the database was opened read-only")
            if self.needs_reopen:
                raise StorageUnavailable("the database must be reopened before the next write")
            error = self._try(partial(database.write, changes.operations))
            if error is None:
                error = self._try(partial(database.sync, sync))
        if error is not None:
            raise error
        self._space.wrote(changes.bytes)

    def get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of the keys, None for missing ones.

        Raises:
            DamagedData: some values cannot be read; `found` has the others.
        """
        wanted = list(keys)
        with self._using() as database:
            try:
                return database.get(family, wanted)
            except Exception as error:
                words = str(error)
            damaged, found = _get_singly(database, family, wanted)
        if damaged:
            raise DamagedData(family, damaged[0], words, found)
        return [found[key] for key in wanted]

    def scan(self, family: str, start: bytes = b"", stop: bytes | None = None) -> Iterator[Entry]:
        """Entries from `start` to before `stop`. Not a snapshot: concurrent writes may show.

        Raises:
            DamagedData: at the first unreadable key; `readable_after` returns where to continue.
        """
        return self._scan(family, start, stop, with_values=True)

    def scan_keys(self, family: str, start: bytes = b"", stop: bytes | None = None) -> Iterator[bytes]:
        """Keys from `start` to before `stop`; otherwise like `scan`."""
        return (key for key, _ in self._scan(family, start, stop, with_values=False))

    def scan_readable(
        self,
        family: str,
        start: bytes = b"",
        stop: bytes | None = None,
        *,
        on_damage: Callable[[DamagedData, bytes | None], None],
    ) -> Iterator[Entry]:
        """Scan and skip damage. `on_damage` gets each error and the key where the scan resumes, if any."""
        place: bytes | None = start
        while place is not None:
            try:
                yield from self._scan(family, place, stop, with_values=True)
                return
            except DamagedData as error:
                place = self.readable_after(family, error.key)
                on_damage(error, place)

    def readable_after(self, family: str, key: bytes) -> bytes | None:
        """The first readable key after a scan failed at this key; None if there is none."""

        def can_seek(place: bytes) -> bool:
            with self._using() as database:
                return database.can_seek(family, place)

        return next_readable(can_seek, key)

    def last_before(self, family: str, key: bytes) -> Entry | None:
        """The entry with the greatest key up to this one."""
        with self._using() as database:
            try:
                return database.last_before(family, key)
            except Exception as error:
                words = str(error)
        raise DamagedData(family, key, words)

    def last_values(self, family: str, prefixes: Sequence[bytes]) -> dict[bytes, bytes]:
        """The value of the greatest key with each prefix, where there is one; see `Database.last_values`."""
        if not prefixes:
            return {}
        with self._using() as database:
            try:
                return database.last_values(family, prefixes)
            except Exception as error:
                words = str(error)
        raise DamagedData(family, prefixes[0], words)

    def flush(self, family: str) -> None:
        """Flush a family into table files. Slow; runs in the calling thread."""
        with self._using() as database:
            if not self.needs_reopen:
                self._try(partial(database.flush, (family,)))

    def compact(self, family: str, stop: bytes) -> None:
        """Free the space of entries deleted before `stop`. Slow; runs in the calling thread.

        Sets `needs_reopen` if it meets damage.
        """
        with self._using() as database:
            if not self.needs_reopen:
                database.compact(family, stop)
                self._try(partial(database.flush, (family,)))  # reports an error of the compaction

    def catch_up(self) -> None:
        """Catch up with the writing process; only where `is_read_only`."""
        with self._using() as database:
            try:
                is_done = database.catch_up()
            except Exception as error:
                words = str(error)
            else:
                words = ""
        if words:
            raise StorageUnavailable(words)
        if not is_done:
            self.reopen()

    def find_missing(self) -> list[str]:
        """Files that another program has deleted since the last call. Cheap; for one thread."""
        with self._using() as database:
            return self._files.find_missing(database.needed_files)

    def free_bytes(self) -> int:
        """Bytes that are free on the file system."""
        return self._space.free_bytes()

    @property
    def reserve_bytes(self) -> int:
        """Bytes that must stay free, so that the write-ahead log fits into tables."""
        return self._space.reserve_bytes

    def check_space(self) -> None:
        """Check that the reserve is free, so that RocksDB never meets a full disk. Not needed to delete.

        Raises:
            StorageFull: less than the reserve is free.
        """
        self._space.check()

    def reopen(self) -> None:
        """Close and open again after a write error. Other calls block meanwhile.

        Raises:
            StorageUnavailable: it failed; then nothing can be read either.
        """
        if self._database is not None and not self.is_read_only:
            self.check_space()  # opening moves the write-ahead log into tables; keep reading until that fits
        with self._lock.exclusive():
            if self._is_closed:
                return
            self._close_database()
            self._database, self.salvage = self._open_again(self._is_damaged)
            self._is_damaged = self.needs_reopen = False
            self._space.measure()
            self._files = FileWatch(self.path / DATABASE_FOLDER)

    def rebuild(self) -> None:
        """Replace the database by a copy of everything readable; `salvage` has the report.

        Raises:
            StorageUnavailable: the disk is full, or fails.
        """
        self._is_damaged = True
        self.reopen()

    def close(self) -> None:
        """Close the database and release the directory. Idempotent."""
        with self._lock.exclusive():
            if self._is_closed:
                return
            self._is_closed = True
            self._close_database()
            self._on_close()

    def _close_database(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    @contextmanager
    def _using(self) -> Iterator[Database]:
        with self._lock.shared():
            if self._database is None:
                raise StorageUnavailable("the database is not open")
            yield self._database

    def _try(self, call: Callable[[], None]) -> StorageUnavailable | None:
        try:
            call()
        except Exception as error:
            if type(error) is not Exception:
                raise  # RocksDB raises plain Exception: this is a bug of ours, not a database error
            words = str(error)
        else:
            return None
        if is_stall(words):
            return StorageUnavailable(words)
        self.needs_reopen = True
        self._is_damaged = self._is_damaged or is_damage(words)
        return unavailable(words)

    def _scan(self, family: str, start: bytes, stop: bytes | None, *, with_values: bool) -> Iterator[Entry]:
        place = start
        while True:
            with self._using() as database:  # not across a yield, which may last long
                chunk = database.chunk(family, place, stop, with_values=with_values)
            yield from chunk.entries
            if chunk.entries:
                place = chunk.entries[-1][0] + b"\0"
            if chunk.error is not None:
                raise DamagedData(family, place, chunk.error)
            if chunk.is_last:
                return


def _get_singly(
    database: Database, family: str, keys: Sequence[bytes]
) -> tuple[list[bytes], dict[bytes, bytes | None]]:
    damaged: list[bytes] = []
    found: dict[bytes, bytes | None] = {}
    for key in keys:
        try:
            found[key] = database.get(family, [key])[0]
        except Exception:
            damaged.append(key)
    return damaged, found
