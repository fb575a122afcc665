"""Read-only access to a data directory, whether a server runs on it or not.

RocksDB can follow another process as a secondary, but writes a file beside the data. So it gets a folder of
links. If files appear or vanish while it opens them, it may see only a part of what was committed, and does
not recover: then it is opened again. A damaged database cannot be followed: then a copy is salvaged and read.
"""

from pathlib import Path

from penstock.storage.disk.recovery.salvage import copy_files, find_endless_journal, open_database
from penstock.storage.disk.rocksdb.database import Database, check
from penstock.storage.disk.rocksdb.errors import Salvage, is_damage, unavailable

_TRIES = 10
_CONFIG = "rocksdict-config.json"


class Follower(Database):
    """RocksDB secondary: reads a database that another process may be writing."""

    def __init__(self, folder: Path, scratch: Path, *, is_quiet: bool) -> None:
        self._folder = folder
        self._links = scratch / "links"
        self._links.mkdir(exist_ok=True)
        linked = self._link()
        if is_quiet:
            check(self._links)
        super().__init__(self._links, "", secondary_folder=scratch / "notes")
        self.is_consistent = linked == _data_in(self._folder)
        """The view is everything that was committed up to some moment."""

    def catch_up(self) -> bool:
        linked = self._link()
        super().catch_up()
        self.is_consistent &= linked == _data_in(self._folder)
        return self.is_consistent

    def _link(self) -> set[str]:
        """Link every file that exists now; return the names of data files."""
        names = _names_in(self._folder) - {_CONFIG}
        links = _names_in(self._links) - {_CONFIG}
        for name in links - names:
            (self._links / name).unlink()
        for name in names - links:
            (self._links / name).symlink_to((self._folder / name).absolute())
        return _data_among(names)


def _names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _data_among(names: set[str]) -> set[str]:
    """Names of tables, write-ahead logs and manifests."""
    return {name for name in names if name.endswith((".sst", ".log")) or name.startswith("MANIFEST-")}


def _data_in(folder: Path) -> set[str]:
    return _data_among(_names_in(folder))


def follow(
    folder: Path, log_id: str, scratch: Path, *, is_quiet: bool = False
) -> tuple[Database, Salvage | None]:
    """Open a database for reading; everything that is written goes into the scratch folder.

    Args:
        is_quiet: no process is writing; then a missing file is damage.

    Raises:
        StorageUnavailable: it cannot be read.
    """
    tries = 1 if is_quiet else _TRIES  # the writing process removes files
    for left in reversed(range(tries if find_endless_journal(folder) is None else 0)):
        try:
            follower = Follower(folder, scratch, is_quiet=is_quiet)
        except Exception as error:
            words = str(error)
        else:
            if follower.is_consistent or not left:  # after the last try the survey reports the gaps
                return follower, None
            follower.close()
            continue
        if not is_damage(words):
            raise unavailable(words)
    copy = scratch / "copy"
    try:
        copy_files(folder, copy, as_symlinks=True)
    except OSError as error:
        raise unavailable(str(error)) from None
    return open_database(copy, log_id)
