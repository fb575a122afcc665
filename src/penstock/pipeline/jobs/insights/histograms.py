"""Histograms that can be added up: counts by buckets whose bounds grow by the same factor.

A value belongs to the bucket `floor(4 * log2(value))`, so a bucket ends 19 % above where it begins, and its
middle is at most 9 % away from everything in it. Buckets are the same everywhere and for ever: the histogram
of a minute is the sum of those of its parts, and tells the same as if every message were counted again.

Here histograms are columns: the entries of all of them one after the other, and how many each has.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

PER_DOUBLING = 4
"""Buckets between a value and twice that value."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Histograms(Struct, frozen=True):
    """Many histograms."""

    buckets: Ints
    """Of all entries; those of one histogram rise."""
    counts: Ints
    offsets: Ints
    """Where the entries of each begin, and at last where those of the last one end."""

    def as_maps(self) -> pa.MapArray:
        """Counts by bucket."""
        return pa.MapArray.from_arrays(
            pa.array(self.offsets, pa.int32()), pa.array(self.buckets, pa.int32()), pa.array(self.counts)
        )

    def percentiles(self, share: float, lowest: Floats, highest: Floats) -> pa.Array:
        """The values that this share of all values does not exceed; null where there are none.

        Args:
            lowest: the lowest value of each, and
            highest: the highest one: nothing is said to be beyond them.
        """
        seen = np.concatenate(([0], np.cumsum(self.counts)))
        before, after = seen[self.offsets[:-1]], seen[self.offsets[1:]]
        is_empty = before == after
        rank = np.maximum(np.ceil((after - before) * share - 1e-9), 1)
        at = np.searchsorted(seen[1:], before + rank)
        middles = (
            middle_of(self.buckets[np.minimum(at, max(len(self.buckets) - 1, 0))]) if len(seen) > 1 else 0.0
        )
        values = np.clip(np.where(is_empty, 0.0, middles), lowest, highest)
        return pa.array(values, pa.float64(), mask=is_empty)


def middle_of(buckets: Ints) -> Floats:
    """Values in the middle of buckets, which stand for all that are in them."""
    middles: Floats = np.exp2((buckets + 0.5) / PER_DOUBLING)
    return middles


def histograms_of(groups: Ints, buckets: Ints, counts: Ints, length: int) -> Histograms:
    """Histograms of entries that say which one they belong to; one entry for each bucket at most."""
    order = np.lexsort((buckets, groups))
    lengths = np.bincount(groups, minlength=length)
    return Histograms(buckets[order], counts[order], np.concatenate(([0], np.cumsum(lengths))))
