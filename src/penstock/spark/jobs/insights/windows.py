"""Windows: aggregation of messages into cells of ten-second windows, and the longer windows made of them.

A cell holds the messages of one window with the same topic and client, and of about the same size and
latency. Cells are few where messages are many, and consist of plain sums and extremes, which Spark compiles:
this is the expensive part. Reports of undelivered messages arrive as messages of the server; each keeps its
text in a cell of its own.

Cells of one window that arrive in several batches are kept side by side and summed later.
"""

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

PER_DOUBLING = 4
"""Histogram buckets between a value and its double."""
DROPS_TOPIC = "$penstock/drops"
COLUMNS = ("topic", "sequence", "published_at", "payload", "client_id", "logged_at")
"""Columns needed from the log."""
WINDOW_US = 10_000_000
MEASURES = {
    "messages": "sum",
    "bytes": "sum",
    "min_bytes": "min",
    "max_bytes": "max",
    "min_latency_us": "min",
    "max_latency_us": "max",
    "first_sequence": "min",
    "last_sequence": "max",
}
"""Measures of a cell, with their aggregation."""
CELLS = pa.schema(
    [
        pa.field("window", pa.int64()),  # where it begins, in microseconds since 1970
        pa.field("topic", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("size_bucket", pa.int32()),
        pa.field("latency_bucket", pa.int32()),
        pa.field("news", pa.string()),
        *(pa.field(name, pa.int64()) for name in MEASURES),
    ]
)
"""Schema of cells."""


def cut_into_cells(messages: DataFrame) -> DataFrame:
    """Aggregate messages into cells.

    Args:
        messages: rows with at least the columns needed; without `logged_at` there is no latency.
    """
    size = f.octet_length("payload").cast("bigint")
    latency = f.unix_micros("logged_at") - f.unix_micros("published_at")
    # Text and numbers only: with structs or bytes Spark would not use its fast hash map.
    news = f.when(f.col("topic") == DROPS_TOPIC, f.col("payload").cast("string"))
    return messages.groupBy(
        f.expr(f"unix_micros(published_at) div {WINDOW_US} * {WINDOW_US}").alias("window"),
        "topic",
        "client_id",
        _bucket_of(size).alias("size_bucket"),
        _bucket_of(latency).alias("latency_bucket"),
        news.alias("news"),
    ).agg(
        f.count(f.lit(1)).alias("messages"),
        f.sum(size).alias("bytes"),
        f.min(size).alias("min_bytes"),
        f.max(size).alias("max_bytes"),
        f.min(latency).alias("min_latency_us"),
        f.max(latency).alias("max_latency_us"),
        f.min("sequence").alias("first_sequence"),
        f.max("sequence").alias("last_sequence"),
    )


def collect_cells(messages: DataFrame) -> pa.Table:
    """Aggregate messages into cells, and collect these; there are at most as many as messages."""
    return cut_into_cells(messages).toArrow().cast(CELLS)


def settled_until(newest_us: int, lateness_us: int, before_us: int) -> int:
    """The watermark: windows that end at or before it accept no more messages.

    It advances with messages, not with a clock, and never moves back.

    Args:
        newest_us: start of the newest window with messages.
        lateness_us: required distance from the end of a window.
        before_us: the watermark so far.
    """
    return max((newest_us - lateness_us) // WINDOW_US * WINDOW_US, before_us)


def _bucket_of(value: Column) -> Column:
    """The histogram bucket of a number; values below 1 count as 1, and null has none."""
    at_least_one = f.when(value > 1, value).when(value.isNotNull(), f.lit(1))
    return f.floor(f.log2(at_least_one.cast("double")) * PER_DOUBLING).cast("int")


class Grain(Struct, frozen=True):
    """Length of windows; they begin at multiples of it, in UTC."""

    name: str
    seconds: int

    @property
    def us(self) -> int:
        """Length in microseconds."""
        return self.seconds * 1_000_000

    def start_of(self, time_us: int) -> int:
        """Start of the window that contains a time."""
        return time_us // self.us * self.us


TEN_SECONDS = Grain("10s", WINDOW_US // 1_000_000)
MINUTE = Grain("1m", 60)
HOUR = Grain("1h", 3600)
GRAINS = (TEN_SECONDS, MINUTE, HOUR)


def is_closed(table: pa.Table, grain: Grain, until_us: int) -> pa.ChunkedArray:
    """Mask of rows whose window ends at or before a time."""
    return pc.less_equal(pc.add(table.column("window"), grain.us), until_us)


def closed_windows(table: pa.Table, grain: Grain, until_us: int) -> pa.Table:
    """Rows of windows that end at or before a time."""
    return table.filter(is_closed(table, grain, until_us))


def open_windows(table: pa.Table, grain: Grain, until_us: int) -> pa.Table:
    """Rows of the other windows."""
    return table.filter(pc.invert(is_closed(table, grain, until_us)))


def widen(table: pa.Table, grain: Grain) -> pa.Table:
    """The same rows as parts of longer windows."""
    starts = pc.multiply(pc.divide(table.column("window"), grain.us), grain.us)
    return table.set_column(table.schema.get_field_index("window"), "window", starts)
