"""Positions in the log: cursors, offsets of Spark streams, and the order of epochs.

The offset of a stream is `{"cursor": "..."}`.

A server that lost the end of an epoch in a crash assigns the freed offsets again. So history is ordered by
epoch and then by offset, as an **epoch offset**. The epoch of a cursor is an upper bound, as a cursor of a
later epoch may have an offset of an earlier one; `Epochs` finds the epoch that an offset belongs to.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct, structs

from penstock.client import Gap
from penstock.common.cursor import Cursor, Position
from penstock.errors import InvalidCursor
from penstock.lake.manifest import Epoch
from penstock.model import Reason

KEY = "cursor"
EpochOffset = tuple[int, int]
"""An epoch and an offset."""


def offset_of(cursor: str) -> dict[str, Any]:
    """A cursor as the offset that Spark stores."""
    return {KEY: cursor}


def cursor_in(offset: dict[str, Any]) -> str:
    """The cursor in an offset that Spark stored.

    Raises:
        InvalidCursor: it is the offset of another data source.
    """
    cursor = offset.get(KEY)
    if not isinstance(cursor, str):
        raise InvalidCursor(
            f"{offset} is not a valid offset of this source: the checkpoint belongs to another one"
        )
    return cursor


def position_of(cursor: str) -> Position:
    """The position of a cursor.

    Raises:
        InvalidCursor: it is not valid, or covers several logs.
    """
    positions = Cursor.decode(cursor).positions
    if len(positions) != 1:
        raise InvalidCursor("this cursor covers several logs; a read needs a cursor of one log")
    return positions[0]


def cursor_at(near: Position, offset: int) -> str:
    """The cursor of a committed offset, not after a known position."""
    # The epoch of a cursor is an upper bound, so that of a later position fits earlier offsets too.
    return Cursor((structs.replace(near, offset=offset),)).encode()


class Bounds(NamedTuple):
    """Rows after one epoch offset, up to and including another."""

    after: EpochOffset
    until: EpochOffset


class Epochs(Struct, frozen=True):
    """Beginnings of epochs, as far as a lake has rows of them."""

    known: Mapping[int, Epoch] = {}

    @property
    def is_plain(self) -> bool:
        """No two rows of the lake have the same offset."""
        return all(epoch.kept is None for epoch in self.known.values())

    def locate(self, position: Position) -> EpochOffset:
        """The epoch that the offset of a position belongs to, with the offset."""
        earlier = [number for number in self.known if number <= position.epoch]
        begun = [number for number in earlier if self.known[number].first <= position.offset]
        if begun:
            return max(begun), position.offset
        return min([position.epoch, *(number - 1 for number in earlier)]), position.offset

    def needs(self, bounds: Bounds) -> bool:
        """Offsets alone do not determine which rows are within bounds."""
        last, high = bounds.until
        is_reused = any(number > last and each.first <= high for number, each in self.known.items())
        low, end = self.offsets(bounds)
        return is_reused or not self.is_plain or (low, end) != (bounds.after[1], high)

    def offsets(self, bounds: Bounds) -> tuple[int, int]:
        """The offset after which, and the offset up to which, all rows within bounds lie."""
        (epoch, low), (last, high) = bounds
        between = [each for number, each in self.known.items() if epoch < number <= last]
        low = min([low, *(each.first - 1 for each in between)])
        return low, max([high, *(each.kept for each in between if each.kept is not None)])

    def lost(self, bounds: Bounds) -> list[Gap]:
        """Rows that a reader at the beginning has seen, and neither log nor lake has any more."""
        (epoch, offset), (last, _) = bounds
        between = [each for number, each in self.known.items() if epoch < number <= last]
        first = min((each.first for each in between), default=offset + 1)
        kept = max((each.kept for each in between if each.kept is not None), default=0)
        first = max(first, kept + 1)
        return [Gap(first, offset, Reason.LOST_UNCOMMITTED)] if first <= offset else []
