"""What can be wrong in a data directory, and what would put it in order."""

import re
from enum import StrEnum

from msgspec import Struct

_FOLDER = re.compile(r"/\S+/(?=\w+[-.]\w+)")


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
        if self.first is None:
            return self.what
        if self.last is None or self.first == self.last:
            return f"offset {self.first}: {self.what}"
        return f"offsets {self.first} to {self.last} ({self.last - self.first + 1:,}): {self.what}"


def tidy(words: str) -> str:
    """What RocksDB says, in one line and without the folder, which may be that of a copy."""
    return " ".join(_FOLDER.sub("", words).split())
