"""What is known of many messages, in a form that can be added up: totals and histograms by their keys.

The first key is always `window`, where a window begins in microseconds since 1970.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from penstock.pipeline.jobs.insights.histograms import Histograms, Ints, histograms_of
from penstock.pipeline.jobs.insights.windows import MEASURES

TOTALS = {**MEASURES, "before_sequence": "min"}
"""The last: the sequence before the first one, as far as it was seen."""


class Addable(Protocol):
    """Something by window that can be added up."""

    def plus(self, other: Self) -> Self:
        """Both, with one row for what has the same keys."""

    def each(self, change: "Edit") -> Self:
        """The same change to all tables of it."""


Edit = Callable[[pa.Table], pa.Table]


class Amounts(Struct, frozen=True):
    """Totals by their keys."""

    keys: tuple[str, ...]
    measures: Mapping[str, str]
    table: pa.Table

    def plus(self, other: Self) -> Self:
        """Both, with one row for what has the same keys."""
        return self.each(
            lambda table: add_up(pa.concat_tables([table, other.table]), self.keys, self.measures)
        )

    def each(self, change: Edit) -> Self:
        """The same with another table."""
        return replace(self, table=change(self.table))


class Sums(Struct, frozen=True):
    """Totals of messages, and the histograms of their sizes and latencies, by the same keys."""

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
        """Both, with one row for what has the same keys."""
        pairs = zip(self.parts, other.parts, strict=True)
        return self.with_parts(*map(pa.concat_tables, pairs)).by(*self.keys)

    def by(self, *keys: str) -> Self:
        """The sums of all that have the same of these keys."""
        entry = (*keys, "bucket")
        counts = {"count": "sum"}
        totals = add_up(self.totals, keys, TOTALS)
        entries = add_up(self.sizes, entry, counts), add_up(self.latencies, entry, counts)
        return replace(self.with_parts(totals, *entries), keys=keys)

    def each(self, change: Edit) -> Self:
        """The same change to totals and histograms."""
        return self.with_parts(*map(change, self.parts))

    def with_parts(self, totals: pa.Table, sizes: pa.Table, latencies: pa.Table) -> Self:
        """The same with other tables."""
        return replace(self, totals=totals, sizes=sizes, latencies=latencies)

    def histograms(self, entries: pa.Table) -> Histograms:
        """The histograms of the totals, in their order."""
        groups = positions_in(self.totals, entries, self.keys)
        buckets, counts = (entries.column(name).to_numpy().astype(np.int64) for name in ("bucket", "count"))
        return histograms_of(groups, buckets, counts, self.totals.num_rows)


def add_up(table: pa.Table, keys: Sequence[str], measures: Mapping[str, str]) -> pa.Table:
    """One row for all that have the same keys, with sums and extremes under their old names."""
    found = table.group_by(list(keys)).aggregate(list(measures.items()))
    names = [f"{name}_{how}" for name, how in measures.items()]
    return found.select([*keys, *names]).rename_columns([*keys, *measures])


def sums_of_cells(cells: pa.Table, keys: tuple[str, ...]) -> Sums:
    """Cells by some of their columns."""
    unknown = pa.nulls(cells.num_rows, pa.int64())
    return Sums(
        keys,
        add_up(cells.append_column("before_sequence", unknown), keys, TOTALS),
        _entries(cells, keys, "size_bucket"),
        _entries(cells, keys, "latency_bucket"),
    )


def _entries(cells: pa.Table, keys: Sequence[str], bucket: str) -> pa.Table:
    found = add_up(cells.filter(pc.is_valid(cells.column(bucket))), (*keys, bucket), {"messages": "sum"})
    return found.rename_columns([*keys, "bucket", "count"])


def positions_in(table: pa.Table, rows: pa.Table, keys: Sequence[str]) -> Ints:
    """Where in a table, which has each key once, the keys of some rows are; it has them all."""
    numbered = table.select(list(keys)).append_column("at", pa.array(np.arange(table.num_rows)))
    asked = rows.select(list(keys)).append_column("row", pa.array(np.arange(rows.num_rows)))
    found: Ints = asked.join(numbered, list(keys)).sort_by("row").column("at").to_numpy().astype(np.int64)
    return found
