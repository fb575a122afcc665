"""State store port: records by table and key that outlive a connection."""

from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct


class StateStore(Protocol):
    """Records by table and key that outlive a connection. A put replaces.

    Changes of one turn of the loop belong to the log's commit of that turn.
    """

    def put(self, table: str, key: str, value: Struct) -> None: ...

    def delete(self, table: str, key: str) -> None: ...

    def scan(self, table: str) -> Iterator[tuple[str, Struct]]:
        """All records of a table, in any order."""
        ...

    def append(self, table: str, value: Struct) -> int:
        """Add a record to a table without keys. Returns its number; numbers rise."""
        ...

    def replay(self, table: str) -> Iterator[tuple[int, Struct]]:
        """All records of a table without keys, by their numbers."""
        ...

    def cut(self, table: str, before: int) -> None:
        """Remove the records of a table without keys whose numbers are lower."""
        ...
