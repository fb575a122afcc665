"""Tells insights to subscribers: one message for each table, grain and window, below `$penstock/insights/`.

All messages of a batch are published by one commit with the batch as its key, so that a batch that is done
twice is told once.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client import HttpClient, NewMessage
from penstock.pipeline.jobs.insights.grains import GRAINS
from penstock.pipeline.jobs.insights.store import Batch
from penstock.pipeline.jobs.insights.tables import PARTITIONS
from penstock.pipeline.source.connection import Connection

PREFIX = "$penstock/insights"
MOST_WINDOWS = 6
"""How many windows of a grain one batch tells: a job that catches up does not repeat what is long over."""

_UNTOLD = {"size_histogram", "latency_histogram", "window_start", "window_end", *PARTITIONS}


def publish(connection: Connection, batch: Batch, tables: Mapping[str, pa.Table], most_rows: int) -> int:
    """Publish the newest windows of a batch, once; tells how many messages that were.

    Raises:
        PenstockError: the server refuses it, or is away for too long.
    """
    told = list(messages_of(tables, most_rows))
    if told:
        connection.insist(lambda client: _commit(client, f"{batch.query}:{batch.number}", told))
    return len(told)


def _commit(client: HttpClient, key: str, told: list[NewMessage]) -> None:
    id = f"insights:{key}"
    client.stage(id, rows=told)
    if client.commit_stages(id, [id], rows=[len(told)]).duplicate:
        client.drop_stage(id)


def messages_of(tables: Mapping[str, pa.Table], most_rows: int) -> Iterator[NewMessage]:
    """The newest windows of each table and grain, older ones first, with the rows that have most messages."""
    for name, table in tables.items():
        for grain in GRAINS:
            rows = table.filter(pc.equal(table.column("grain"), grain.name))
            starts = sorted(pc.unique(rows.column("window_start")).to_pylist())
            for start in starts[-MOST_WINDOWS:]:
                yield _message(f"{PREFIX}/{name}/{grain.name}", rows, start, most_rows)


def _message(topic: str, rows: pa.Table, start: datetime, most_rows: int) -> NewMessage:
    there = rows.filter(
        pc.equal(rows.column("window_start"), pa.scalar(start, rows.schema.field("window_start").type))
    )
    first = there.sort_by([("messages", "descending")]).slice(0, most_rows)
    told = first.select([each for each in first.column_names if each not in _UNTOLD]).to_pylist()
    content: dict[str, Any] = {
        "window_start": start,
        "window_end": first.column("window_end")[0].as_py(),
        "rows_in_all": there.num_rows,
        "rows": told,
    }
    return NewMessage(
        topic=topic, data=msgspec.to_builtins(content), retain=True, content_type="application/json"
    )
