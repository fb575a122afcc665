"""The opened database: reads and writes from any thread, and a way back after an error.

After an error in writing nothing more is written until `reopen`: what a failed fsync left on the disk is not
known, and trying again would not tell. Reads go on meanwhile.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from penstock.errors import StorageUnavailable
from penstock.storage.disk.around import next_readable
from penstock.storage.disk.database import Database, Entry, Operation
from penstock.storage.disk.failures import DamagedData, StorageFull, is_damage, is_stall, unavailable
from penstock.storage.disk.gate import Gate
from penstock.storage.disk.layout import DATABASE_FOLDER
from penstock.storage.disk.salvage import Salvage
from penstock.storage.disk.space import Space

__all__ = ["Changes", "DamagedData", "StorageFull", "Store"]


class Changes:
    """What is written together: all of it or nothing, in the order it was collected. For one write only."""

    __slots__ = ("bytes", "operations")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.bytes = 0

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Set a key."""
        self.operations.append((family, key, value, None))
        self.bytes += len(key) + len(value)

    def delete(self, family: str, key: bytes) -> None:
        """Remove a key, whether it is there or not."""
        self.operations.append((family, key, None, None))
        self.bytes += len(key)

    def delete_range(self, family: str, start: bytes, stop: bytes) -> None:
        """Remove all keys from `start` on, before `stop`."""
        self.operations.append((family, start, None, stop))
        self.bytes += len(start) + len(stop)

    def __len__(self) -> int:
        return len(self.operations)


class Store:
    """The database of a data directory. Any thread may call anything; `reopen` waits for those inside."""

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
            open_again: opens it again; told whether damage was met in writing.
            on_close: gives the directory back.
        """
        self.path = path
        self.log_id = log_id
        self.is_read_only = is_read_only
        self.needs_reopen = False
        """Nothing can be written before `reopen`."""
        self.salvage: Salvage | None = None
        """What the last `reopen` had to do about damage."""
        self._database: Database | None = database
        self._open_again = open_again
        self._on_close = on_close
        self._is_damaged = False
        self._is_closed = False
        self._gate = Gate()
        self._space = Space(path / DATABASE_FOLDER)

    @property
    def is_reopening(self) -> bool:
        """It is being opened again, and whoever asks for something has to wait."""
        return self._gate.is_shut

    def write(self, changes: Changes, *, sync: bool) -> None:
        """Write all or nothing; with `sync` it is on the disk when this returns.

        Raises:
            StorageFull: no room. Unless `needs_reopen` is set, nothing was written.
            StorageUnavailable: it could not be written, or it is not known whether it was.
        """
        with self._using() as database:
            if self.is_read_only:
                raise StorageUnavailable("the database was opened to be read")
            if self.needs_reopen:
                raise StorageUnavailable("the database takes no writes before it is opened again")
            error = self._try(partial(database.write, changes.operations))
            if error is None:
                error = self._try(partial(database.sync, sync))
        if error is not None:
            raise error
        self._space.wrote(changes.bytes)

    def get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of the keys, None for what is not there.

        Raises:
            DamagedData: some cannot be read; it has the others.
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
        """Entries from `start` on, before `stop`. What is written meanwhile may be seen or not.

        Raises:
            DamagedData: at the damaged place; `readable_after` tells where to go on.
        """
        return self._scan(family, start, stop, with_values=True)

    def scan_keys(self, family: str, start: bytes = b"", stop: bytes | None = None) -> Iterator[bytes]:
        """The same, keys only."""
        return (key for key, _ in self._scan(family, start, stop, with_values=False))

    def scan_around(
        self,
        family: str,
        start: bytes = b"",
        stop: bytes | None = None,
        *,
        on_damage: Callable[[DamagedData, bytes | None], None],
    ) -> Iterator[Entry]:
        """Scan what can be read, and call back for what cannot, with where reading goes on, if it does."""
        place: bytes | None = start
        while place is not None:
            try:
                yield from self._scan(family, place, stop, with_values=True)
                return
            except DamagedData as error:
                place = self.readable_after(family, error.key)
                on_damage(error, place)

    def readable_after(self, family: str, key: bytes) -> bytes | None:
        """The key from which a scan works again, after one raised at this key; None if it never does."""

        def can_seek(place: bytes) -> bool:
            with self._using() as database:
                return database.can_seek(family, place)

        return next_readable(can_seek, key)

    def last_before(self, family: str, key: bytes) -> Entry | None:
        """The entry with the greatest key that is not above this one."""
        with self._using() as database:
            try:
                return database.last_before(family, key)
            except Exception as error:
                words = str(error)
        raise DamagedData(family, key, words)

    def flush(self, family: str) -> None:
        """Move what is only in the write-ahead log into a table; takes a while, in the caller's thread."""
        with self._using() as database:
            if not self.needs_reopen:
                self._try(partial(database.flush, (family,)))

    def compact(self, family: str, stop: bytes) -> None:
        """Give back the space of what was deleted before `stop`; takes a while, in the caller's thread.

        If it meets damage, `needs_reopen` says so from then on.
        """
        with self._using() as database:
            if not self.needs_reopen:
                database.compact(family, stop)
                self._try(partial(database.flush, (family,)))  # what stopped the compaction is told here only

    def catch_up(self) -> None:
        """See what the process that writes has written since; only where `is_read_only`."""
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

    def free_bytes(self) -> int:
        """What is left on the file system for us."""
        return self._space.free_bytes()

    @property
    def reserve_bytes(self) -> int:
        """What has to stay free, so that everything that is only in the write-ahead log fits into tables."""
        return self._space.reserve_bytes

    def check_space(self) -> None:
        """Refuse before RocksDB meets a full disk; whoever deletes need not ask.

        Raises:
            StorageFull: less is free than has to be.
        """
        self._space.check()

    def reopen(self) -> None:
        """Close and open again, after an error in writing. Everybody else waits meanwhile.

        Raises:
            StorageUnavailable: it does not work yet; then nothing can be read either.
        """
        if self._database is not None and not self.is_read_only:
            self.check_space()  # opening moves the write-ahead log into tables; go on reading until that fits
        with self._gate.alone():
            if self._is_closed:
                return
            self._let_go()
            self._database, self.salvage = self._open_again(self._is_damaged)
            self._is_damaged = self.needs_reopen = False
            self._space.measure()

    def rebuild(self) -> None:
        """Replace the database by one that has everything that can be read; `salvage` tells of it.

        Raises:
            StorageUnavailable: there is no room for it, or the disk fails.
        """
        self._is_damaged = True
        self.reopen()

    def close(self) -> None:
        """Close the database and give the directory back. Further calls do nothing."""
        with self._gate.alone():
            if self._is_closed:
                return
            self._is_closed = True
            self._let_go()
            self._on_close()

    def _let_go(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    @contextmanager
    def _using(self) -> Iterator[Database]:
        with self._gate.inside():
            if self._database is None:
                raise StorageUnavailable("the database is not open")
            yield self._database

    def _try(self, call: Callable[[], None]) -> StorageUnavailable | None:
        try:
            call()
        except Exception as error:
            if type(error) is not Exception:
                raise  # RocksDB's have no type: this is a mistake of ours, and the database is well
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
            with self._using() as database:  # not across a yield: who knows when we are asked again
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
