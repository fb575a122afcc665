"""Small lakes, made of rows as the log has them."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.client import Gap
from penstock.lake import Change, DataFile, Expired, Table, lake_messages
from penstock.spark.source.schema import log_schema


def add_files(
    lake: Path,
    batches: Sequence[pa.RecordBatch],
    cursor: str,
    *,
    start: str | None = None,
    filters: tuple[str, ...] = (),
    gaps: Sequence[Gap] = (),
    expired: Sequence[Expired] = (),
) -> Table:
    """Archive batches, a file for each, up to a cursor."""
    table = lake_messages(lake)
    count = len(table.manifest().files)
    files = [_write(table, f"{count + number}.parquet", batch) for number, batch in enumerate(batches)]
    change = Change(
        by="test",
        added=files,
        schema=log_schema().json(),
        cursor=cursor,
        start=start,
        filters=filters,
        gaps=gaps,
        expired=expired,
    )
    table.commit(lambda manifest: change)
    return table


def _write(table: Table, name: str, batch: pa.RecordBatch) -> DataFile:
    path = table.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches([batch]), path, write_page_checksum=True)
    offsets = pc.min_max(batch.column("offset")).as_py()
    times = pc.min_max(batch.column("published_at").view(pa.int64())).as_py()
    return DataFile(
        path=name,
        rows=batch.num_rows,
        bytes=path.stat().st_size,
        first_offset=offsets["min"],
        last_offset=offsets["max"],
        first_time=times["min"],
        last_time=times["max"],
    )
