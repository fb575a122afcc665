"""Rows, runs and lakes for the tests of the audit, in few words."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.cursor import Cursor, Position
from penstock.lake import Change, DataFile, Manifest, lake_messages
from penstock.lake.layout import bucket_of, message_partition
from penstock.spark.jobs.audit.runs import OffsetRange, Run

ALL = OffsetRange(0, 1 << 40)
LOG_ID = "00112233445566aa"
DAY_US = 86_400_000_000
SOME_DAY = 20_000
"""The day, counted from 1970, on which everything happens that is not said to happen elsewhere."""

RangeEnd = tuple[str, int, int, int]
"""Topic, epoch, sequence and offset of a row."""


def cursor(offset: int, epoch: int = 1) -> str:
    """A cursor of the log that the lakes here are of."""
    return Cursor((Position(LOG_ID, epoch, offset),)).encode()


def batch(rows: Iterable[RangeEnd], times: Sequence[int] | None = None) -> pa.RecordBatch:
    """Rows with the columns that an audit looks at, and a payload."""
    listed = list(rows)
    times = times if times is not None else [SOME_DAY * DAY_US + row[3] for row in listed]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row[3] for row in listed], pa.int64()),
            pa.array([row[0] for row in listed], pa.string()),
            pa.array([row[2] for row in listed], pa.int64()),
            pa.array([row[1] for row in listed], pa.int64()),
            pa.array(times, pa.timestamp("us", "UTC")),
            pa.array([f"{row[0]} {row[2]} ".encode() * 50 for row in listed], pa.binary()),
        ],
        names=["offset", "topic", "sequence", "epoch", "published_at", "payload"],
    )


def run(
    first: int,
    last: int,
    offset: int | None = None,
    *,
    topic: str = "a",
    epoch: int = 1,
    path: str = "f",
    is_inside: bool = True,
    last_offset: int | None = None,
) -> Run:
    """A run whose offsets are its sequences, unless told otherwise; `path=""` is the log's."""
    offset = first if offset is None else offset
    end = offset + last - first if last_offset is None else last_offset
    return Run(topic, epoch, first, last, offset, end, path, is_inside)


def lake_with(
    lake: Path,
    files: Iterable[Sequence[RangeEnd]],
    *,
    cursor_offset: int,
    start_offset: int = 0,
    buckets: int = 2,
    change: Change | None = None,
) -> Manifest:
    """A lake with a file for each list of rows, which are of one bucket and one day."""
    table = lake_messages(lake)
    added = [write_file(table.path, f"{number}.parquet", rows, buckets) for number, rows in enumerate(files)]
    given = change or Change()
    return table.commit(
        lambda _: Change(
            added=added,
            schema="{}",
            cursor=cursor(cursor_offset),
            start=cursor(start_offset),
            log_id=LOG_ID,
            buckets=buckets,
            batch=1,
            gaps=given.gaps,
            expired=given.expired,
        )
    )


def write_file(folder: Path, name: str, rows: Sequence[RangeEnd], buckets: int = 2) -> DataFile:
    """One data file, below the folder of its partition, and what a manifest says of it."""
    data = batch(rows)
    partition = message_partition(SOME_DAY, bucket_of(rows[0][0], buckets))
    path = "/".join([*(f"{key}={value}" for key, value in partition.items()), name])
    position = folder / path
    position.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches([data]), position, compression="zstd", write_page_checksum=True)
    offsets = [row[3] for row in rows]
    return DataFile(
        path=path,
        rows=len(rows),
        bytes=position.stat().st_size,
        partition=partition,
        first_offset=min(offsets),
        last_offset=max(offsets),
        first_time=SOME_DAY * DAY_US + min(offsets),
        last_time=SOME_DAY * DAY_US + max(offsets),
    )


def damage(path: Path, column_name: str = "payload") -> None:
    """Change the last byte of a column of a data file."""
    data = bytearray(path.read_bytes())
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    column = next(each for each in columns if each.path_in_schema == column_name)
    begin = column.dictionary_page_offset or column.data_page_offset
    position = begin + column.total_compressed_size - 1
    data[position] ^= 0xFF
    path.write_bytes(data)
