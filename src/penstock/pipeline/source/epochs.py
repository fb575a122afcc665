"""The order of history, where a server that crashed gave offsets a second time.

A server that lost the end of an epoch goes on with the offsets that are free again. So offsets alone do not
say what came first: rows are ordered by epoch and then by offset, which is what a **spot** is. A cursor says
less, as a later epoch speaks of earlier offsets as well; which epoch an offset belongs to is found here.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from penstock.client import Gap
from penstock.core.ports import Position
from penstock.pipeline.lake.manifest import Epoch
from penstock.pipeline.source.missing import LOST

Spot = tuple[int, int]
"""An epoch and an offset."""


class Bounds(NamedTuple):
    """Rows behind one spot and not behind another."""

    after: Spot
    until: Spot


class Epochs(Struct, frozen=True):
    """Where epochs began, as far as a lake has rows of them."""

    known: Mapping[int, Epoch] = {}

    @property
    def is_plain(self) -> bool:
        """Whether no two rows of the lake have the same offset."""
        return all(epoch.kept is None for epoch in self.known.values())

    def spot(self, place: Position) -> Spot:
        """The epoch that the offset of a place belongs to, with the offset."""
        earlier = [number for number in self.known if number <= place.epoch]
        begun = [number for number in earlier if self.known[number].first <= place.offset]
        if begun:
            return max(begun), place.offset
        return min([place.epoch, *(number - 1 for number in earlier)]), place.offset

    def needs(self, bounds: Bounds) -> bool:
        """Whether it takes more than offsets to say which rows are within bounds."""
        last, high = bounds.until
        is_reused = any(number > last and each.first <= high for number, each in self.known.items())
        low, end = self.offsets(bounds)
        return is_reused or not self.is_plain or (low, end) != (bounds.after[1], high)

    def offsets(self, bounds: Bounds) -> tuple[int, int]:
        """Behind which offset, and up to which, all rows within bounds lie."""
        (epoch, low), (last, high) = bounds
        between = [each for number, each in self.known.items() if epoch < number <= last]
        low = min([low, *(each.first - 1 for each in between)])
        return low, max([high, *(each.kept for each in between if each.kept is not None)])

    def lost(self, bounds: Bounds) -> list[Gap]:
        """What whoever is at the beginning has seen, and neither the log nor the lake has any more."""
        (epoch, offset), (last, _) = bounds
        between = [each for number, each in self.known.items() if epoch < number <= last]
        first = min((each.first for each in between), default=offset + 1)
        kept = max((each.kept for each in between if each.kept is not None), default=0)
        first = max(first, kept + 1)
        return [Gap(first, offset, LOST)] if first <= offset else []
