"""Reading a data directory without writing to it, whether a server runs on it or not.

RocksDB can follow what another process writes, but it wants to keep a file of its own beside the data. So it
is shown a folder of links. Files that come and go while it reads them would leave it with a part of what was
committed, and it would not get over that: then it has to be opened anew. A damaged database cannot be
followed: then a copy is salvaged and read.
"""

from pathlib import Path

from penstock.storage.disk.database import Database, check
from penstock.storage.disk.failures import is_damage, unavailable
from penstock.storage.disk.journal import find_trap
from penstock.storage.disk.salvage import Salvage, copy_files, open_database

_TRIES = 10
_CONFIG = "rocksdict-config.json"


class Follower(Database):
    """A database that another process may be writing."""

    def __init__(self, folder: Path, scratch: Path, *, is_quiet: bool) -> None:
        self._folder = folder
        self._links = scratch / "links"
        self._links.mkdir(exist_ok=True)
        linked = self._link()
        if is_quiet:
            check(self._links)
        super().__init__(self._links, "", secondary_folder=scratch / "notes")
        self.is_of_one_moment = linked == _data_in(self._folder)
        """What is seen is all that was committed up to some moment."""

    def catch_up(self) -> bool:
        linked = self._link()
        super().catch_up()
        self.is_of_one_moment &= linked == _data_in(self._folder)
        return self.is_of_one_moment

    def _link(self) -> set[str]:
        """Show every file that is there now; answers which of them have data."""
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
    """Tables, and the journals that say which there are and what is in none yet."""
    return {name for name in names if name.endswith((".sst", ".log")) or name.startswith("MANIFEST-")}


def _data_in(folder: Path) -> set[str]:
    return _data_among(_names_in(folder))


def follow(
    folder: Path, log_id: str, scratch: Path, *, is_quiet: bool = False
) -> tuple[Database, Salvage | None]:
    """Open a database for reading; all that is written goes into a scratch folder.

    Args:
        is_quiet: nobody writes it now; then nothing may be missing.

    Raises:
        StorageUnavailable: it cannot be read.
    """
    tries = 1 if is_quiet else _TRIES  # files go while the other process works
    for left in reversed(range(tries if find_trap(folder) is None else 0)):
        try:
            follower = Follower(folder, scratch, is_quiet=is_quiet)
        except Exception as error:
            words = str(error)
        else:
            if follower.is_of_one_moment or not left:  # what it lacks even then is found to be missing
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
