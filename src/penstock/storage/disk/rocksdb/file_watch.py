"""Watch over the files of an open database, which another program may delete under a running server.

A process that has a file open notices nothing when its name is removed: writes and syncs succeed, and the
next start finds less than was acknowledged. So names that vanish from the folder are compared with those that
RocksDB needs. No file is needed again, so one that is needed after it has vanished was deleted by another
program.
"""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

_CURRENT = "CURRENT"


class Needed(Struct, frozen=True):
    """Files that an open database needs."""

    tables: frozenset[str]
    first_journal: int
    """Number of the oldest write-ahead log file that is needed."""

    def has(self, name: str) -> bool:
        """Return whether a file is needed."""
        stem, _, kind = name.partition(".")
        return name in self.tables or (kind == "log" and stem.isdigit() and int(stem) >= self.first_journal)


class FileWatch:
    """Names in the folder of a database, as they were seen last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._identity = _identity_of(folder)
        self._names = frozenset(os.listdir(folder))  # noqa: PTH208 - only the names

    def find_missing(self, needed: Callable[[], Needed]) -> list[str]:
        """Return what another program has deleted since the last call, by name.

        Costs one listing of the folder, and `needed` only if something has vanished.
        """
        try:
            names = frozenset(os.listdir(self._folder))  # noqa: PTH208 - only the names
            is_same = _identity_of(self._folder) == self._identity
        except FileNotFoundError:
            return [self._folder.name]
        if not is_same:
            return [self._folder.name]
        missing = self._missing_of(self._names - names, needed)
        self._names = names  # not before: after an error the next call looks again
        return missing

    def _missing_of(self, vanished: frozenset[str], needed: Callable[[], Needed]) -> list[str]:
        if not vanished:
            return []
        still = needed()
        always = {_CURRENT, self._manifest()}
        missing = sorted(name for name in vanished if name in always or still.has(name))
        return [name for name in missing if not (self._folder / name).exists()]  # CURRENT is replaced

    def _manifest(self) -> str:
        """Name of the manifest in use: RocksDB removes an older one only after CURRENT names the next."""
        try:
            return (self._folder / _CURRENT).read_text("ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return ""


def _identity_of(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino
