"""What can be wrong with a lake."""

from penstock.errors import PenstockError


class InvalidLake(PenstockError):
    """The lake is not where or what it should be: another path, a damaged manifest, other settings."""

    code = "invalid-lake"


class DamagedFile(PenstockError):
    """A data file cannot be read, or not what was written; the text names it."""

    code = "damaged-file"
