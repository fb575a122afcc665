"""The tables of the insights: which columns they have, and in which order."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.jobs.insights.grains import Grain

PARTITIONS = ("grain", "date")
"""The columns that all tables end with."""

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
"""The columns of each table, without those that all end with."""


def schema_of(name: str) -> pa.Schema:
    """All columns of a table."""
    return pa.schema({**TABLES[name], "grain": pa.string(), "date": pa.date32()})


def finished(name: str, grain: Grain, rows: pa.Table) -> pa.Table:
    """Rows of one grain as a table has them."""
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
    schema = schema_of(name)
    columns = [made[each] if each in made else rows.column(each) for each in schema.names]
    return pa.table(columns, names=schema.names).cast(schema)
