"""State store on disk: records in the database of the log, written in its commits."""

from collections.abc import Iterator, Mapping

import structlog
from msgspec import MsgspecError, Struct, msgpack

from penstock.storage.disk.commit.group_commit import GroupCommit
from penstock.storage.disk.rocksdb.layout import STATE, offset_of, table_prefix
from penstock.storage.disk.rocksdb.store import Store

log = structlog.get_logger("penstock.log")


class DiskStateStore:
    """Records by table and key. Read at start; turns change them afterwards."""

    def __init__(self, store: Store, commits: GroupCommit, tables: Mapping[str, type[Struct]]) -> None:
        self._store = store
        self._commits = commits
        self._decoders = {table: msgpack.Decoder(kind) for table, kind in tables.items()}

    def scan(self, table: str) -> Iterator[tuple[str, Struct]]:
        """All records of a table, committed or pending."""
        for key, value in self._read(table).items():
            yield key.decode("utf-8", "surrogatepass"), value

    def replay(self, table: str) -> Iterator[tuple[int, Struct]]:
        for key, value in sorted(self._read(table).items()):
            yield offset_of(key), value

    def _log_damage(self, words: object, place: bytes | None = None) -> None:
        """Report damaged records, which are skipped."""
        log.error("records of sessions are damaged", reason=str(words))

    def _read(self, table: str) -> dict[bytes, Struct]:
        """Stored records of a table with pending changes applied, by key without prefix."""
        prefix, decode = table_prefix(table), self._decoders[table].decode
        stop = prefix[:-1] + b"\1"
        found: dict[bytes, Struct] = {}
        for key, value in self._store.scan_readable(STATE, prefix, stop, on_damage=self._log_damage):
            try:
                found[key] = decode(value)
            except MsgspecError as error:
                self._log_damage(str(error))
        self._commits.apply_changes(found, prefix)
        return {key[len(prefix) :]: value for key, value in found.items()}
