"""State store port: records by table and key that outlive a connection."""

from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct


class StateStore(Protocol):
    """Records by table and key. Changes are part of a `Turn`; here they are read.

    A read sees every turn that the log was given and the present one, committed or not.
    """

    def scan(self, table: str) -> Iterator[tuple[str, Struct]]:
        """All records of a table, in any order."""
        ...

    def replay(self, table: str) -> Iterator[tuple[int, Struct]]:
        """All records of a numbered table, by their numbers."""
        ...
