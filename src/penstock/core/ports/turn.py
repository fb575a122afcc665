"""Turn: everything that one turn of the loop changes, as one value.

Core builds it and the log commits it: messages and state records together, or none of them. The sequencer
belongs to the log; it gives out offsets and has the turn that is being built.
"""

import sys
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from msgspec import Struct

from penstock.runs import Run

_offset_of = attrgetter("offset")

Key = tuple[str, str | int]
"""Table and key of a state record. Keys of numbered tables are numbers."""


class Turn:
    """Messages and state changes of one turn.

    A put replaces, a delete of a missing record does nothing. Cuts apply before puts and deletes.
    """

    __slots__ = ("cuts", "deletes", "head", "is_urgent", "puts", "runs")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        """Messages to store, in the order of their offsets."""
        self.puts: dict[Key, Struct] = {}
        self.deletes: dict[Key, None] = {}
        self.cuts: dict[str, int] = {}
        """Numbered tables, each with the number before which all records are removed."""
        self.head = 0
        """The newest offset at the end of the turn, stored or not."""
        self.is_urgent = False
        """Something waits for its commit. Other turns may wait for more to join them."""

    @property
    def is_empty(self) -> bool:
        """Nothing was changed yet."""
        return not (self.runs or self.puts or self.deletes or self.cuts)

    def put(self, table: str, key: str | int, record: Struct) -> None:
        """Store a record."""
        self.puts[table, key] = record
        if self.deletes:
            self.deletes.pop((table, key), None)

    def delete(self, table: str, key: str | int) -> None:
        """Delete a record."""
        self.puts.pop((table, key), None)
        self.deletes[table, key] = None

    def cut(self, table: str, before: int) -> None:
        """Remove the records of a numbered table whose numbers are lower."""
        for place in [place for place in self.puts if _is_cut(place, table, before)]:
            del self.puts[place]
        self.cuts[table] = max(before, self.cuts.get(table, before))

    def apply_to(self, table: str, records: dict[str | int, Struct]) -> None:
        """Apply the changes of one table to records that were read before."""
        before = self.cuts.get(table)
        if before is not None:
            for key in [key for key in records if _is_cut((table, key), table, before)]:
                del records[key]
        for (changed, key), record in self.puts.items():
            if changed == table:
                records[key] = record
        for changed, key in self.deletes:
            if changed == table:
                records.pop(key, None)


class Sequencer:
    """Gives out the offsets of a log, and collects the present turn."""

    __slots__ = ("head", "room_bytes", "turn")

    def __init__(self, head: int) -> None:
        self.head = head
        """The newest offset that was given to a message, stored or not. It only rises."""
        self.turn = Turn()
        """The turn that is being built."""
        self.room_bytes = sys.maxsize
        """Bytes that may be published before the log is behind. Core counts down, the log sets it anew."""

    def end_turn(self, *, is_urgent: bool) -> Turn:
        """Finish the present turn and begin the next."""
        turn, self.turn = self.turn, Turn()
        turn.head, turn.is_urgent = self.head, is_urgent
        return turn


def find_message(runs: Sequence[Run], offset: int) -> Run | None:
    """Return a single message by its offset, from runs in the order of their offsets."""
    place = bisect_right(runs, offset, key=_offset_of) - 1
    if place < 0 or offset > runs[place].last_offset:
        return None
    return runs[place].part(offset - runs[place].offset, 1)


def _is_cut(place: Key, table: str, before: int) -> bool:
    changed, key = place
    return changed == table and isinstance(key, int) and key < before
