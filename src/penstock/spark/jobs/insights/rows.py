"""Tables of the insights: their columns, and rows made of sums with rates, percentiles, ranks, gaps and
balance.

All functions take and return an Arrow table of one grain.
"""

from collections.abc import Iterable

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from penstock.lake.layout import buckets_of
from penstock.spark.jobs.insights.sums import Amounts, Floats, Ints, Sums, aggregate, positions_in
from penstock.spark.jobs.insights.windows import Grain

AMOUNTS = {"messages": "sum", "bytes": "sum"}
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
NO_CLIENTS = Amounts(
    ("window", "client_id"),
    AMOUNTS,
    pa.schema(
        {"window": pa.int64(), "client_id": pa.string(), "messages": pa.int64(), "bytes": pa.int64()}
    ).empty_table(),
)
NO_DROPS = Amounts(
    ("window", "reason"),
    {"messages": "sum"},
    pa.schema({"window": pa.int64(), "reason": pa.string(), "messages": pa.int64()}).empty_table(),
)
PARTITIONS = ("grain", "date")
"""The last columns of all tables."""
_TIME = pa.timestamp("us", "UTC")
_HISTOGRAM = pa.map_(pa.int32(), pa.int64())
_WINDOW = {"window_start": _TIME, "window_end": _TIME}
_RATES = {"messages_per_s": pa.float64(), "bytes_per_s": pa.float64()}
_AMOUNTS = {"messages": pa.int64(), "bytes": pa.int64(), **_RATES}
_MEASURES = {
    **_AMOUNTS,
    "min_bytes": pa.int64(),
    "max_bytes": pa.int64(),
    "bytes_p50": pa.int64(),
    "bytes_p95": pa.int64(),
    "bytes_p99": pa.int64(),
    "latency_p50_ms": pa.float64(),
    "latency_p95_ms": pa.float64(),
    "latency_p99_ms": pa.float64(),
    "min_latency_us": pa.int64(),
    "max_latency_us": pa.int64(),
}
_HISTOGRAMS = {"size_histogram": _HISTOGRAM, "latency_histogram": _HISTOGRAM}
_RANK = {"rank": pa.int32(), "share": pa.float64()}
TABLES: dict[str, dict[str, pa.DataType]] = {
    "topics": {
        **_WINDOW,
        "topic": pa.string(),
        **_MEASURES,
        "first_sequence": pa.int64(),
        "last_sequence": pa.int64(),
        "missing": pa.int64(),
        "missing_before": pa.int64(),
        **_HISTOGRAMS,
    },
    "prefixes": {
        **_WINDOW,
        "prefix": pa.string(),
        "topics": pa.int64(),
        **_MEASURES,
        "missing": pa.int64(),
        **_HISTOGRAMS,
    },
    "hot": {**_WINDOW, "topic": pa.string(), **_AMOUNTS, **_RANK},
    "clients": {**_WINDOW, "client_id": pa.string(), **_AMOUNTS, **_RANK},
    "drops": {**_WINDOW, "reason": pa.string(), "messages": pa.int64(), "messages_per_s": pa.float64()},
    "balance": {
        **_WINDOW,
        "buckets": pa.int32(),
        "messages": pa.int64(),
        "bytes": pa.int64(),
        "largest_bucket": pa.int32(),
        "largest_messages": pa.int64(),
        "largest_bytes": pa.int64(),
        "messages_imbalance": pa.float64(),
        "bytes_imbalance": pa.float64(),
    },
}
"""Columns of each table, without the common last ones."""


class _DropReport(Struct):
    """Report of the server about messages that were not delivered."""

    reason: str
    count: int


_decoder = msgspec.json.Decoder(list[_DropReport])


# Topics and prefixes


def topic_rows(sums: Sums) -> pa.Table:
    """Rows by window and topic."""
    rows = _with_histograms(sums)
    first, last, seen = (_numbers(rows, name) for name in ("first_sequence", "last_sequence", "messages"))
    rows = rows.append_column("missing", pa.array(np.maximum(last - first + 1 - seen, 0)))
    gap = pc.subtract(pc.subtract(rows.column("first_sequence"), rows.column("before_sequence")), 1)
    return rows.append_column("missing_before", pc.max_element_wise(gap, 0))


def prefix_rows(sums: Sums, topics: pa.Table, levels: int) -> pa.Table:
    """Rows by window and the first levels of the topic; gaps are summed from the rows of topics."""
    keys = ["window", "prefix"]
    rows = _with_histograms(sums.each(lambda part: _with_prefix(part, levels)).by(*keys))
    lost = pc.add(topics.column("missing"), topics.column("missing_before"))
    gaps = _with_prefix(topics.select(["window", "topic"]).append_column("missing", lost), levels)
    more = aggregate(gaps, keys, {"missing": "sum", "topic": "count"}).rename_columns(
        [*keys, "missing", "topics"]
    )
    at = positions_in(more, rows, keys)
    for name in ("missing", "topics"):
        rows = rows.append_column(name, more.column(name).take(at))
    return rows


def _with_prefix(table: pa.Table, levels: int) -> pa.Table:
    names = _encoded(table, "topic")
    cut = pa.array(["/".join(name.split("/")[:levels]) for name in names.dictionary.to_pylist()], pa.string())
    return table.append_column("prefix", cut.take(names.indices))


def _with_histograms(sums: Sums) -> pa.Table:
    """Totals with histograms and percentiles."""
    sizes, latencies = sums.histograms(sums.sizes), sums.histograms(sums.latencies)
    least, most = _floats(sums.totals, "min_bytes"), _floats(sums.totals, "max_bytes")
    shortest, longest = (
        np.maximum(_floats(sums.totals, name), 0) for name in ("min_latency_us", "max_latency_us")
    )
    rows = sums.totals
    for name, share in SHARES.items():
        found = pc.round(sizes.percentiles(share, least, most))
        rows = rows.append_column(f"bytes_{name}", found.cast(pa.int64()))
    for name, share in SHARES.items():
        found = latencies.percentiles(share, shortest, longest)
        rows = rows.append_column(f"latency_{name}_ms", pc.divide(found, 1000.0))
    rows = rows.append_column("size_histogram", sizes.as_maps())
    return rows.append_column("latency_histogram", latencies.as_maps())


def with_sequences_before(sums: Sums, last_sequences: pa.Table) -> Sums:
    """Add the sequence of each topic before its window: from the window before, or from earlier batches.

    For a topic that was never seen, nothing is known to be missing.
    """
    totals = sums.totals.sort_by([("topic", "ascending"), ("window", "ascending")])
    names = _encoded(totals, "topic")
    codes, last = names.indices.to_numpy(), _numbers(totals, "last_sequence")
    goes_on, previous = np.zeros(len(last), np.bool_), np.zeros(len(last), np.int64)
    goes_on[1:], previous[1:] = codes[1:] == codes[:-1], last[:-1]
    seen_at = pc.index_in(names.dictionary, value_set=last_sequences.column("topic").combine_chunks())
    seen = last_sequences.column("last_sequence").combine_chunks().take(seen_at).take(names.indices)
    known = pc.coalesce(seen, pc.subtract(totals.column("first_sequence").combine_chunks(), 1))
    found = pc.if_else(pa.array(goes_on), pa.array(previous), known)
    at = totals.schema.get_field_index("before_sequence")
    return sums.with_parts(totals.set_column(at, "before_sequence", found), sums.sizes, sums.latencies)


def sequences_after(sums: Sums, last_sequences: pa.Table) -> pa.Table:
    """Last sequence of each topic after some windows."""
    newest = sums.totals.sort_by("window").select(["topic", "last_sequence"])
    both = pa.concat_tables([last_sequences, newest])
    found = both.group_by("topic", use_threads=False).aggregate([("last_sequence", "last")])
    return found.rename_columns(["topic", "last_sequence"])


# Ranks and balance


def rank_rows(rows: pa.Table, name: str) -> pa.Table:
    """Rows with their rank by messages in their window, from 1, and their share of the messages."""
    order = [
        ("window", "ascending"),
        ("messages", "descending"),
        ("bytes", "descending"),
        (name, "ascending"),
    ]
    rows = rows.sort_by(order)
    windows, messages = _numbers(rows, "window"), _numbers(rows, "messages")
    starts, groups = np.unique(windows, return_index=True, return_inverse=True)[1:]
    ranks = np.arange(len(windows)) - starts[groups] + 1
    totals = np.bincount(groups, weights=messages)
    shares = messages / totals[groups] if len(messages) else messages.astype(np.float64)
    return rows.append_column("rank", pa.array(ranks, pa.int32())).append_column("share", pa.array(shares))


def hot_rows(topics: pa.Table, most: int) -> pa.Table:
    """The topics with most messages of each window."""
    rows = rank_rows(topics.select(["window", "topic", *AMOUNTS]), "topic")
    return rows.filter(pc.less_equal(rows.column("rank"), most))


def balance_rows(topics: pa.Table, buckets: int) -> pa.Table:
    """Imbalance of the messages of a window over the buckets of a lake: the largest over the average."""
    names = _encoded(topics, "topic")
    of_names = pa.array(buckets_of(names.dictionary.to_pylist(), buckets), pa.int32())
    filled = aggregate(
        topics.append_column("bucket", of_names.take(names.indices)), ("window", "bucket"), AMOUNTS
    )
    order = [("window", "ascending"), ("messages", "descending"), ("bucket", "ascending")]
    found = filled.sort_by(order).group_by("window", use_threads=False)
    rows = found.aggregate(
        [("messages", "sum"), ("bytes", "sum"), ("bucket", "first"), ("messages", "max"), ("bytes", "max")]
    ).rename_columns(["window", "messages", "bytes", "largest_bucket", "largest_messages", "largest_bytes"])
    for name in AMOUNTS:
        whole, largest = _floats(rows, name), _floats(rows, f"largest_{name}")
        uneven = np.divide(largest * buckets, whole, out=np.zeros_like(whole), where=whole > 0)
        rows = rows.append_column(f"{name}_imbalance", pa.array(uneven, mask=whole == 0))
    return rows.append_column("buckets", pa.array([buckets] * rows.num_rows, pa.int32()))


# Clients and drops


def client_sums(cells: pa.Table) -> Amounts:
    """Messages and bytes by window and client; an unnamed client has an empty name."""
    named = pc.fill_null(cells.column("client_id"), "")
    found = cells.select(["window", "messages", "bytes"]).append_column("client_id", named)
    return NO_CLIENTS.plus(replace(NO_CLIENTS, table=found.select(NO_CLIENTS.table.column_names)))


def drop_sums(news: pa.Table) -> Amounts:
    """Messages that did not reach a subscriber, by the window of the report, and the reason."""
    columns = (news.column(name).to_pylist() for name in ("window", "news", "messages"))
    rows = [
        {"window": window, "reason": each.reason, "messages": each.count * times}
        for window, text, times in zip(*columns, strict=True)
        for each in _read(text)
    ]
    return NO_DROPS.plus(replace(NO_DROPS, table=pa.Table.from_pylist(rows, NO_DROPS.table.schema)))


def _read(text: str) -> Iterable[_DropReport]:
    try:
        return _decoder.decode(text)
    except msgspec.MsgspecError:  # perhaps from a newer server: skip it
        return ()


# Columns


def _encoded(table: pa.Table, name: str) -> pa.DictionaryArray:
    return table.column(name).combine_chunks().dictionary_encode()


def _numbers(table: pa.Table, name: str) -> Ints:
    numbers: Ints = table.column(name).to_numpy()
    return numbers


def _floats(table: pa.Table, name: str) -> Floats:
    """A column of numbers, with 0 for null."""
    numbers: Floats = pc.fill_null(table.column(name), 0).to_numpy().astype(np.float64)
    return numbers


def table_schema(name: str) -> pa.Schema:
    """All columns of a table."""
    return pa.schema({**TABLES[name], "grain": pa.string(), "date": pa.date32()})


def finish_table(name: str, grain: Grain, rows: pa.Table) -> pa.Table:
    """Rows of one grain with the columns of a table."""
    starts = rows.column("window").cast(pa.timestamp("us")).cast(_TIME)
    made = {
        "window_start": starts,
        "window_end": pc.add(starts, pa.scalar(np.timedelta64(grain.us, "us"))),
        "grain": pa.array([grain.name] * rows.num_rows, pa.string()),
        "date": starts.cast(pa.date32()),
    }
    for amount in ("messages", "bytes"):
        if f"{amount}_per_s" in TABLES[name]:
            made[f"{amount}_per_s"] = pc.divide(rows.column(amount).cast(pa.float64()), float(grain.seconds))
    schema = table_schema(name)
    columns = [made[each] if each in made else rows.column(each) for each in schema.names]
    return pa.table(columns, names=schema.names).cast(schema)
