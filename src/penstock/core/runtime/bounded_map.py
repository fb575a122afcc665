"""Bounded map: the latest entries, up to a number of them and for a time.

The oldest leave first. Every operation costs the same however many entries there are, except `take_stale`,
which costs as much as it removes.
"""

from collections import OrderedDict
from collections.abc import Iterator
from math import inf
from typing import Generic, TypeVar

from msgspec import Struct

Key = TypeVar("Key")
Value = TypeVar("Value")


class _Entry(Struct, Generic[Value], frozen=True, gc=False):
    """A value, and when it expires. Values must not refer back to their map."""

    value: Value
    expires_at: float


class BoundedMap(Generic[Key, Value]):
    """Values by key, oldest first.

    Args:
        limit: most entries. Whatever exceeds it leaves with `take_stale`.
    """

    __slots__ = ("_entries", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[Key, _Entry[Value]] = OrderedDict()  # finds its first at once

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __reversed__(self) -> Iterator[Key]:
        return reversed(self._entries)

    def put(self, key: Key, value: Value, expires_at: float = inf) -> Value | None:
        """Add or replace an entry, which becomes the latest; return the earlier value.

        `take_stale` makes room.
        """
        entries = self._entries
        earlier = entries.get(key)
        entries[key] = _Entry(value, expires_at)
        if earlier is None:
            return None
        entries.move_to_end(key)
        return earlier.value

    def find(self, key: Key, now: float = -inf) -> Value | None:
        """Return a value, unless it has expired."""
        entry = self._entries.get(key)
        return None if entry is None or entry.expires_at <= now else entry.value

    def use(self, key: Key) -> Value | None:
        """Return a value; its entry becomes the latest."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.value

    def pop(self, key: Key) -> Value | None:
        """Remove an entry; return its value."""
        entry = self._entries.pop(key, None)
        return None if entry is None else entry.value

    def take_stale(self, now: float = -inf, most: int = 1) -> list[tuple[Key, Value]]:
        """Remove the oldest entries as long as they have expired or exceed the limit, and return them.

        Args:
            most: most entries that are removed at once.
        """
        entries = self._entries
        stale: list[tuple[Key, Value]] = []
        while entries and len(stale) < most:
            key = next(iter(entries))
            entry = entries[key]
            if len(entries) <= self.limit and entry.expires_at > now:
                break
            del entries[key]
            stale.append((key, entry.value))
        return stale

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
