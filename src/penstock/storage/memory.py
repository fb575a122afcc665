"""Log and state in memory: the default, and the reference for every other implementation.

Everything is committed the moment it is appended and gone when the process ends; the log says so by a
new id at each start.
"""

from asyncio import Future
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from secrets import token_hex

from msgspec import Struct

from penstock.core.ports import Span, Ticket
from penstock.core.ring import RUN_BYTES
from penstock.model import Door, Run, Shape

_offset_of = attrgetter("offset")
_GONE = Run("", b"", 0, 0, 0, Shape("", Door.SERVER, 0, False, True))
"""Stands where a run was, so that its memory is free before its place is."""


class MemoryTicket(Struct, frozen=True, gc=False):
    """The end of what was appended; committed at once."""

    offset: int


class MemoryLog:
    """The kept runs, bounded by bytes; the oldest leave first."""

    def __init__(self, limit_bytes: int) -> None:
        self.log_id = token_hex(8)
        self.epoch = 1
        self.first_offset = 1
        self._limit_bytes = limit_bytes
        self._runs: list[Run] = []
        self._start = 0  # runs before this index are gone; their places are removed in steps
        self._size = 0

    def append(self, run: Run) -> MemoryTicket:
        """Keep a run."""
        self._runs.append(run)
        self._size += len(run.slab) + RUN_BYTES
        if self._size > self._limit_bytes:
            self._trim()
        return MemoryTicket(run.offset + run.count - 1)

    def committed(self, ticket: Ticket) -> "Future[None] | None":
        """Nothing in memory waits for a commit."""
        return None

    def read(self, after: int, limit_bytes: int) -> Span:
        """Runs after an offset, oldest first."""
        runs: list[Run] = []
        size, until = 0, after
        index = bisect_right(self._runs, after, lo=self._start, key=_offset_of)
        if index > self._start and (last := self._runs[index - 1]).offset + last.count - 1 > after:
            index -= 1
        while index < len(self._runs) and (size < limit_bytes or not runs):
            run = self._runs[index]
            index += 1
            runs.append(run)
            size += len(run.slab)
            until = run.offset + run.count - 1
        return Span(tuple(runs), until)

    def _trim(self) -> None:
        while self._size > self._limit_bytes and self._start < len(self._runs):
            run = self._runs[self._start]
            self._size -= len(run.slab) + RUN_BYTES
            self.first_offset = run.offset + run.count
            self._runs[self._start] = _GONE
            self._start += 1
        if self._start > 1024 and self._start * 2 > len(self._runs):
            del self._runs[: self._start]
            self._start = 0


class MemoryStateStore:
    """Records by table and key."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Struct]] = {}

    def put(self, table: str, key: str, value: Struct) -> None:
        self._tables.setdefault(table, {})[key] = value

    def delete(self, table: str, key: str) -> None:
        self._tables.get(table, {}).pop(key, None)

    def scan(self, table: str) -> Iterator[tuple[str, Struct]]:
        yield from list(self._tables.get(table, {}).items())
