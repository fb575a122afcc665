"""Publishing of insights: one retained message per table, grain and window, below `$penstock/insights/`.

One commit publishes all messages of a batch, with the batch as idempotency key: a repeated batch publishes
nothing.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client import HttpClient, NewMessage
from penstock.spark.connection import Connection
from penstock.spark.jobs.insights.rows import PARTITIONS
from penstock.spark.jobs.insights.store import Batch
from penstock.spark.jobs.insights.windows import GRAINS

PREFIX = "$penstock/insights"
MAX_WINDOWS = 6
"""Limit of windows of a grain per batch: a job that catches up does not publish old windows."""

_UNPUBLISHED = {"size_histogram", "latency_histogram", "window_start", "window_end", *PARTITIONS}


def publish(connection: Connection, batch: Batch, tables: Mapping[str, pa.Table], most_rows: int) -> int:
    """Publish the newest windows of a batch once; returns the number of messages.

    Raises:
        PenstockError: the server refuses it, or is unavailable for too long.
    """
    messages = list(messages_of(tables, most_rows))
    if messages:
        connection.retry(lambda client: _commit(client, f"{batch.query}:{batch.number}", messages))
    return len(messages)


def _commit(client: HttpClient, key: str, messages: list[NewMessage]) -> None:
    id = f"insights:{key}"
    client.stage(id, rows=messages)
    if client.commit_stages(id, [id], rows=[len(messages)]).duplicate:
        client.drop_stage(id)


def messages_of(tables: Mapping[str, pa.Table], most_rows: int) -> Iterator[NewMessage]:
    """The newest windows of each table and grain, oldest first, with the rows of most messages."""
    for name, table in tables.items():
        for grain in GRAINS:
            rows = table.filter(pc.equal(table.column("grain"), grain.name))
            starts = sorted(pc.unique(rows.column("window_start")).to_pylist())
            for start in starts[-MAX_WINDOWS:]:
                yield _message(f"{PREFIX}/{name}/{grain.name}", rows, start, most_rows)


def _message(topic: str, rows: pa.Table, start: datetime, most_rows: int) -> NewMessage:
    there = rows.filter(
        pc.equal(rows.column("window_start"), pa.scalar(start, rows.schema.field("window_start").type))
    )
    first = there.sort_by([("messages", "descending")]).slice(0, most_rows)
    messages = first.select([each for each in first.column_names if each not in _UNPUBLISHED]).to_pylist()
    content: dict[str, Any] = {
        "window_start": start,
        "window_end": first.column("window_end")[0].as_py(),
        "rows_in_all": there.num_rows,
        "rows": messages,
    }
    return NewMessage(
        topic=topic, data=msgspec.to_builtins(content), retain=True, content_type="application/json"
    )
