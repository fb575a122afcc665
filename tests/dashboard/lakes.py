"""Lakes with test messages and insights, written as the jobs write them, without Spark."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.lake import Change, lake_insights
from penstock.lake.writer import by_columns, write_batches
from penstock.spark.jobs.insights.rows import PARTITIONS, table_schema
from tests.lake.lakes import add_batch
from tests.lake.messages import DAY_US, NOON, messages

TOPICS = ("plant/a", "plant/b", "yard/c")


def make_lake(lake: Path, batches: int = 3, rows: int = 40) -> None:
    """Archive some batches, each of the next day."""
    for number in range(batches):
        batch = messages(number * rows + 1, rows, TOPICS, NOON + number * DAY_US)
        add_batch(lake, batch, buckets=4)


def add_insights(
    lake: Path, name: str, grain: str, window: datetime, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Add rows of one window to a table; columns that are not given are null."""
    schema = table_schema(name)
    whole = [
        {
            **dict.fromkeys(schema.names),
            **row,
            "window_start": window,
            "window_end": window + timedelta(seconds=10),
            "grain": grain,
            "date": window.date(),
        }
        for row in rows
    ]
    table = lake_insights(lake, name)
    batches = pa.Table.from_pylist(whole, schema).to_batches()
    files = write_batches(table.path, by_columns(PARTITIONS), batches)
    table.commit(lambda manifest: Change(by="insights", added=files, schema="{}"))
