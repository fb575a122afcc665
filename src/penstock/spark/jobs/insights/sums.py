"""Aggregates that can be added up: totals and histograms by their keys.

The first key is always `window`, the start of a window in microseconds since 1970.

A histogram counts values by bucket `floor(4 * log2(value))`: a bucket ends 19 % above its beginning, and its
middle is within 9 % of all its values. Buckets never change, so the histogram of a minute is the sum of those
of its parts. Histograms are stored as columns: all entries in a row, and the number of entries of each.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from penstock.spark.jobs.insights.windows import MEASURES, PER_DOUBLING

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
TOTALS = {**MEASURES, "before_sequence": "min"}
"""The last measure is the sequence before the first one, as far as it was seen."""
Edit = Callable[[pa.Table], pa.Table]


class Histograms(Struct, frozen=True):
    """Many histograms as columns."""

    buckets: Ints
    """Of all entries; ascending within a histogram."""
    counts: Ints
    offsets: Ints
    """Index of the first entry of each histogram, and the end of the last."""

    def as_maps(self) -> pa.MapArray:
        """Counts by bucket."""
        return pa.MapArray.from_arrays(
            pa.array(self.offsets, pa.int32()), pa.array(self.buckets, pa.int32()), pa.array(self.counts)
        )

    def percentiles(self, share: float, lowest: Floats, highest: Floats) -> pa.Array:
        """Estimated percentiles; null for an empty histogram.

        Args:
            lowest: lower limit of each estimate: the lowest value.
            highest: upper limit of each estimate: the highest value.
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
    """The middle of each bucket, which represents all its values."""
    middles: Floats = np.exp2((buckets + 0.5) / PER_DOUBLING)
    return middles


def histograms_of(groups: Ints, buckets: Ints, counts: Ints, length: int) -> Histograms:
    """Build histograms from entries with the index of their histogram; at most one entry per bucket."""
    order = np.lexsort((buckets, groups))
    lengths = np.bincount(groups, minlength=length)
    return Histograms(buckets[order], counts[order], np.concatenate(([0], np.cumsum(lengths))))


class Addable(Protocol):
    """Aggregates by window that can be added up."""

    def plus(self, other: Self) -> Self:
        """Sum of both, one row per key."""

    def each(self, change: "Edit") -> Self:
        """Apply a change to all tables."""


class Amounts(Struct, frozen=True):
    """Totals by key."""

    keys: tuple[str, ...]
    measures: Mapping[str, str]
    table: pa.Table

    def plus(self, other: Self) -> Self:
        """Sum of both, one row per key."""
        return self.each(
            lambda table: aggregate(pa.concat_tables([table, other.table]), self.keys, self.measures)
        )

    def each(self, change: Edit) -> Self:
        """The same with a changed table."""
        return replace(self, table=change(self.table))


class Sums(Struct, frozen=True):
    """Totals of messages, with histograms of their sizes and latencies, by the same keys."""

    keys: tuple[str, ...]
    totals: pa.Table
    sizes: pa.Table
    """The keys with `bucket` and `count`."""
    latencies: pa.Table

    @property
    def parts(self) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Totals, sizes, latencies."""
        return self.totals, self.sizes, self.latencies

    def plus(self, other: Self) -> Self:
        """Sum of both, one row per key."""
        pairs = zip(self.parts, other.parts, strict=True)
        return self.with_parts(*map(pa.concat_tables, pairs)).by(*self.keys)

    def by(self, *keys: str) -> Self:
        """Aggregate by some of the keys."""
        entry = (*keys, "bucket")
        counts = {"count": "sum"}
        totals = aggregate(self.totals, keys, TOTALS)
        entries = aggregate(self.sizes, entry, counts), aggregate(self.latencies, entry, counts)
        return replace(self.with_parts(totals, *entries), keys=keys)

    def each(self, change: Edit) -> Self:
        """Apply a change to totals and histograms."""
        return self.with_parts(*map(change, self.parts))

    def with_parts(self, totals: pa.Table, sizes: pa.Table, latencies: pa.Table) -> Self:
        """The same with other tables."""
        return replace(self, totals=totals, sizes=sizes, latencies=latencies)

    def histograms(self, entries: pa.Table) -> Histograms:
        """The histograms of the totals, in their order."""
        groups = positions_in(self.totals, entries, self.keys)
        buckets, counts = (entries.column(name).to_numpy().astype(np.int64) for name in ("bucket", "count"))
        return histograms_of(groups, buckets, counts, self.totals.num_rows)


def aggregate(table: pa.Table, keys: Sequence[str], measures: Mapping[str, str]) -> pa.Table:
    """Group by keys, with sums and extremes under their old names."""
    found = table.group_by(list(keys)).aggregate(list(measures.items()))
    names = [f"{name}_{how}" for name, how in measures.items()]
    return found.select([*keys, *names]).rename_columns([*keys, *measures])


def sums_of_cells(cells: pa.Table, keys: tuple[str, ...]) -> Sums:
    """Aggregate cells by some of their columns."""
    unknown = pa.nulls(cells.num_rows, pa.int64())
    return Sums(
        keys,
        aggregate(cells.append_column("before_sequence", unknown), keys, TOTALS),
        _entries(cells, keys, "size_bucket"),
        _entries(cells, keys, "latency_bucket"),
    )


def _entries(cells: pa.Table, keys: Sequence[str], bucket: str) -> pa.Table:
    found = aggregate(cells.filter(pc.is_valid(cells.column(bucket))), (*keys, bucket), {"messages": "sum"})
    return found.rename_columns([*keys, "bucket", "count"])


def positions_in(table: pa.Table, rows: pa.Table, keys: Sequence[str]) -> Ints:
    """Row numbers, in a table with unique keys, of the keys of some rows; all must exist."""
    numbered = table.select(list(keys)).append_column("at", pa.array(np.arange(table.num_rows)))
    asked = rows.select(list(keys)).append_column("row", pa.array(np.arange(rows.num_rows)))
    found: Ints = asked.join(numbered, list(keys)).sort_by("row").column("at").to_numpy().astype(np.int64)
    return found
