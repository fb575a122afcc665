"""The one pass over the messages: windows of ten seconds, cut into cells of which all else is the sum.

A cell holds the messages of one window with the same topic and client, of about the same size, and about as
long on their way to the log. Cells are few where messages are many, and they are made of plain sums and
extremes of numbers, which Spark compiles: this is the part that costs something. What was not delivered comes
in messages of the server: these are taken along as they are, each in a cell of its own.

Cells of one window that come in several batches simply lie side by side: whoever adds up adds all of them.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.jobs.insights.histograms import PER_DOUBLING

DROPS_TOPIC = "$penstock/drops"
COLUMNS = ("topic", "sequence", "published_at", "payload", "client_id", "logged_at")
"""What is needed of the log."""
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
"""What is known of some messages, and how it is added up."""
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
"""The columns of cells."""


def cut_into_cells(messages: DataFrame) -> DataFrame:
    """Add messages up to cells.

    Args:
        messages: rows with at least the columns that are needed; without `logged_at` there is no latency.
    """
    size = f.octet_length("payload").cast("bigint")
    latency = f.unix_micros("logged_at") - f.unix_micros("published_at")
    # A text and numbers, no struct and no bytes: with these Spark would not use its quick map.
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
    """Add messages up to cells, and bring these here; there are at most as many as messages."""
    return cut_into_cells(messages).toArrow().cast(CELLS)


def settled_until(newest_us: int, lateness_us: int, before_us: int) -> int:
    """The watermark: no message is counted any more in windows that end there or before.

    It moves with the messages, not with a clock, and only onward.

    Args:
        newest_us: where the newest window begins that there are messages of.
        lateness_us: how much later than the end of a window that has to be.
        before_us: the watermark so far.
    """
    return max((newest_us - lateness_us) // WINDOW_US * WINDOW_US, before_us)


def _bucket_of(value: Column) -> Column:
    """The bucket of a number, as `histograms.py` has them; what is below 1 counts as 1, and null has none."""
    at_least_one = f.when(value > 1, value).when(value.isNotNull(), f.lit(1))
    return f.floor(f.log2(at_least_one.cast("double")) * PER_DOUBLING).cast("int")
