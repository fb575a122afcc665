"""Errors of a lake."""

from penstock.errors import PenstockError


class InvalidLake(PenstockError):
    """The lake is missing or unusable: wrong path, damaged manifest, or conflicting settings."""

    code = "invalid-lake"


class DamagedFile(PenstockError):
    """A data file is unreadable, or its content changed; the text names it."""

    code = "damaged-file"
