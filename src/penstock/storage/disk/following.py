"""Reading a data directory without writing to it, whether a server runs on it or not.

RocksDB can follow what another process writes, but it wants to keep a file of its own beside the data. So it
is shown a folder of links. A damaged database cannot be followed: then a copy is salvaged and read.
"""

from pathlib import Path

from penstock.storage.disk.database import Database, check
from penstock.storage.disk.failures import is_damage, unavailable
from penstock.storage.disk.journal import find_trap
from penstock.storage.disk.salvage import Salvage, copy_files, open_database

_TRIES = 5
_CONFIG = "rocksdict-config.json"


class Follower(Database):
    """A database that another process may be writing."""

    def __init__(self, folder: Path, scratch: Path, *, is_quiet: bool) -> None:
        self._folder = folder
        self._links = scratch / "links"
        self._links.mkdir(exist_ok=True)
        self._link()
        if is_quiet:
            check(self._links)
        super().__init__(self._links, "", secondary_folder=scratch / "notes")

    def catch_up(self) -> None:
        """See what has been written since."""
        self._link()
        super().catch_up()

    def _link(self) -> None:
        names = {path.name for path in self._folder.iterdir()} - {_CONFIG}
        links = {path.name for path in self._links.iterdir()} - {_CONFIG}
        for name in links - names:
            (self._links / name).unlink()
        for name in names - links:
            (self._links / name).symlink_to((self._folder / name).absolute())


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
    for _ in range(tries if find_trap(folder) is None else 0):
        try:
            return Follower(folder, scratch, is_quiet=is_quiet), None
        except Exception as error:
            words = str(error)
        if not is_damage(words):
            raise unavailable(words)
    copy = scratch / "copy"
    try:
        copy_files(folder, copy, as_symlinks=True)
    except OSError as error:
        raise unavailable(str(error)) from None
    return open_database(copy, log_id)
