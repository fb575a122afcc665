"""What can be wrong in a data directory, and what would put it in order."""

import re
import tempfile
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from penstock.storage.disk.layout import DATABASE_FOLDER


class Remedy(StrEnum):
    """What `repair` does about a finding."""

    REBUILD = "rebuild"
    """Copy everything that can be read into a new database."""
    REINDEX = "reindex"
    """Make anew from a sealed batch what is stored about it."""
    REMOVE = "remove"
    """Remove what is of no use."""
    REWRITE = "rewrite"
    """Write a small file again."""
    NONE = "none"
    """Nothing: it is lost."""


class Finding(Struct, frozen=True):
    """One thing that is wrong."""

    what: str
    remedy: Remedy
    first: int | None = None
    last: int | None = None
    """The offsets it is about, if it is about messages."""
    family: str = ""
    key: bytes = b""
    """Where it is in the database, if it is there."""

    @property
    def can_be_mended(self) -> bool:
        """Whether `repair` can do something about it."""
        return self.remedy is not Remedy.NONE

    @property
    def text(self) -> str:
        """All of it in one line."""
        return self.what if self.first is None else f"{self.offsets}: {self.what}"

    @property
    def offsets(self) -> str:
        """Which offsets it is about."""
        if self.first is None:
            return ""
        if self.last is None or self.first == self.last:
            return f"offset {self.first}"
        return f"offsets {self.first} to {self.last} ({self.last - self.first + 1:,})"


def tidy(words: str, directory: Path) -> str:
    """What RocksDB says, in one line, and about the files of the data directory: it may have seen a copy."""
    database = str(directory / DATABASE_FOLDER)
    scratch = re.escape(str(Path(tempfile.gettempdir()).absolute())) + r"/+penstock-[^/]+/[a-z]+"
    seen = re.compile(rf"(?:{scratch}|{re.escape(database)})(?:\.draft)?(?:\.copy)?(?=/)/+")
    return " ".join(seen.sub(lambda _: f"{database}/", words).split())
