"""Writer of data files: splits rows by partition, and writes one Parquet file per partition.

Row groups are buffered in memory up to a limit. A file has page checksums, and gets its final name once it is
complete and synced. Unfinished files are removed; files that are never committed are deleted by
`maintenance.py`.
"""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.lake.layout import NO_VALUE, buckets_of, days_of, message_partition, partition_folder
from penstock.lake.manifest import DataFile, Partition
from penstock.lake.table import Table, make_folder, sync_folder

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Piece = tuple[Partition, pa.RecordBatch]
Splitter = Callable[[pa.RecordBatch], Iterator[Piece]]
_Keys = np.ndarray[tuple[int], np.dtype[Any]]
SUFFIX = ".parquet"
DRAFT_SUFFIX = ".draft"
GROUP_ROWS = 131_072
GROUP_BYTES = 32 << 20
"""Limit of the rows and bytes buffered for one row group."""
WAITING_BYTES = 128 << 20
"""Limit of the bytes buffered for all partitions together; then the largest is written."""
FILE_BYTES = 512 << 20
"""Size at which a new file begins."""
OFFSET, TIME = "offset", "published_at"
UNIQUE = ("message_id", "correlation_id")
"""Columns of mostly unique values: a dictionary would be as large as the values."""


class TableWriter:
    """Writes the rows of one task to files by partition; a context manager."""

    def __init__(self, path: Path, split: Splitter, file_bytes: int = FILE_BYTES) -> None:
        self._path = path
        self._split = split
        self._file_bytes = file_bytes
        self._open: dict[Partition, _OpenFile] = {}
        self._waiting_bytes = 0
        self._done: list[DataFile] = []

    def __enter__(self) -> "TableWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._open.values():
            file.drop()
        if kind is not None:
            for done in self._done:
                (self._path / done.path).unlink(missing_ok=True)

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer rows, and write full row groups."""
        for partition, rows in self._split(batch):
            file = self._open.get(partition)
            if file is None:
                file = self._open[partition] = _OpenFile(self._path, partition, rows.schema)
            self._waiting_bytes += file.add(rows)
            if file.is_full:
                self._flush(file)
        while self._waiting_bytes > WAITING_BYTES:
            self._flush(max(self._open.values(), key=lambda file: file.waiting_bytes))

    def finish(self) -> list[DataFile]:
        """Write the rest, sync it, and return all files."""
        for file in self._open.values():
            self._done.append(file.finish())
        self._open.clear()
        for folder in {(self._path / file.path).parent for file in self._done}:
            sync_folder(folder)
        return list(self._done)

    def _flush(self, file: "_OpenFile") -> None:
        self._waiting_bytes -= file.flush()
        if file.size >= self._file_bytes:
            self._done.append(file.finish())
            del self._open[file.partition]


def write_batches(path: Path, split: Splitter, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
    """Write batches to files by partition; runs on a worker."""
    with TableWriter(path, split) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


def drop_files(table: Table, files: Iterable[DataFile]) -> None:
    """Delete files that will not be committed; live files are never deleted."""
    live = table.manifest().files
    for file in files:
        if file.path not in live:
            table.absolute(file).unlink(missing_ok=True)


def by_date_and_bucket(buckets: int) -> Splitter:
    """Partition messages by the day of `published_at` in UTC, and the bucket of `topic`."""
    return partial(_split_messages, buckets)


def by_columns(names: Sequence[str]) -> Splitter:
    """Partition rows by the values of some columns, which are dropped from the rows."""
    return partial(_split_by_columns, tuple(names))


def into_partition(partition: Mapping[str, str]) -> Splitter:
    """Put all rows into one partition, whose columns they do not have."""
    return partial(_as_one, tuple(partition.items()))


def decode_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace dictionary columns by plain values: Parquet builds its own dictionaries."""
    if not any(pa.types.is_dictionary(kind) for kind in batch.schema.types):
        return batch
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _as_one(partition: Partition, batch: pa.RecordBatch) -> Iterator[Piece]:
    if batch.num_rows:
        yield partition, decode_dictionaries(batch)


def _split_messages(buckets: int, batch: pa.RecordBatch) -> Iterator[Piece]:
    if not batch.num_rows:
        return
    topics = batch.column("topic")
    if not pa.types.is_dictionary(topics.type):
        topics = topics.dictionary_encode()
    of_names = buckets_of(topics.dictionary.to_pylist(), buckets)
    of_rows = of_names[topics.indices.to_numpy(zero_copy_only=False)]
    days = days_of(batch.column("published_at").cast(pa.timestamp("us", "UTC")))
    first_day = int(days.min())
    keys = of_rows if int(days.max()) == first_day else (days - first_day) * buckets + of_rows
    for key, rows in _pieces(decode_dictionaries(batch), keys):
        day, bucket = divmod(key, buckets)
        yield tuple(message_partition(first_day + day, bucket).items()), rows


def _split_by_columns(names: tuple[str, ...], batch: pa.RecordBatch) -> Iterator[Piece]:
    if not batch.num_rows:
        return
    rest = decode_dictionaries(batch.select([name for name in batch.schema.names if name not in names]))
    if not names:
        yield (), rest
        return
    keys: _Keys = np.zeros(batch.num_rows, np.int64)
    values: list[list[str]] = []
    for name in names:
        coded = pc.fill_null(batch.column(name).cast(pa.string()), NO_VALUE).dictionary_encode()
        values.append(coded.dictionary.to_pylist())
        keys = keys * len(values[-1]) + coded.indices.to_numpy(zero_copy_only=False)
    for key, rows in _pieces(rest, keys):
        yield tuple(zip(names, _values_at(key, values), strict=True)), rows


def _values_at(key: int, values: list[list[str]]) -> list[str]:
    found = []
    for each in reversed(values):
        key, index = divmod(key, len(each))
        found.append(each[index])
    return found[::-1]


def _pieces(batch: pa.RecordBatch, keys: _Keys) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each key, in the order of the keys; rows of one key keep their order."""
    if (keys == keys[0]).all():
        yield int(keys[0]), batch
        return
    order = np.argsort(keys, kind="stable")
    sort_messages, sorted_keys = batch.take(pa.array(order)), keys[order]
    ends = np.flatnonzero(np.diff(sorted_keys)) + 1
    for first, end in zip([0, *ends.tolist()], [*ends.tolist(), batch.num_rows], strict=True):
        yield int(sorted_keys[first]), sort_messages.slice(first, end - first)


class _OpenFile:
    """Parquet file that is being written."""

    def __init__(self, path: Path, partition: Partition, schema: pa.Schema) -> None:
        self.partition = partition
        self.waiting_bytes = 0
        folder = partition_folder(dict(partition))
        self._name = f"{folder}/{uuid4().hex}{SUFFIX}" if folder else f"{uuid4().hex}{SUFFIX}"
        self._path = path / self._name
        self._draft = self._path.with_name(f".{self._path.name}{DRAFT_SUFFIX}")
        self._schema = schema
        self._sink = _create(self._draft)
        self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, mode="w"), schema, **_encoding(schema))
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._rows = 0
        self._offsets, self._times = _MinMax(), _MinMax()

    @property
    def is_full(self) -> bool:
        """Enough rows are buffered for a row group."""
        return self._waiting_rows >= GROUP_ROWS or self.waiting_bytes >= GROUP_BYTES

    @property
    def size(self) -> int:
        """Number of bytes written."""
        return self._sink.tell()

    def add(self, rows: pa.RecordBatch) -> int:
        """Buffer rows; returns their size in bytes."""
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self.waiting_bytes += rows.nbytes
        return int(rows.nbytes)

    def flush(self) -> int:
        """Write the buffered rows as a row group; returns the bytes that were buffered."""
        flushed = self.waiting_bytes
        if self._waiting:
            group = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(group, row_group_size=group.num_rows)
            self._rows += group.num_rows
            self._offsets.widen(group, OFFSET)
            self._times.widen(group, TIME)
            self._waiting.clear()
            self._waiting_rows = self.waiting_bytes = 0
        return flushed

    def finish(self) -> DataFile:
        """Close and sync the file, and give it its final name."""
        self.flush()
        self._writer.close()
        self._sink.close()
        sync_file(self._draft)
        size = self._draft.stat().st_size
        self._draft.rename(self._path)
        return DataFile(
            path=self._name,
            rows=self._rows,
            bytes=size,
            partition=dict(self.partition),
            first_offset=self._offsets.first,
            last_offset=self._offsets.last,
            first_time=self._times.first,
            last_time=self._times.last,
            crc=self._sink.crc,
        )

    def drop(self) -> None:
        """Close the file and delete it."""
        with suppress(OSError, pa.ArrowException):  # a full disk was reported before
            self._writer.close()
            self._sink.close()
        self._draft.unlink(missing_ok=True)


class _ChecksummedFile(io.BufferedWriter):
    """File that computes the CRC-32 of everything written to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "w"))
        self.crc = 0

    def write(self, data: "ReadableBuffer") -> int:
        self.crc = crc32(data, self.crc)
        return super().write(data)


class _MinMax:
    """Minimum and maximum of a column of integers or times, if the column exists."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None

    def widen(self, rows: pa.Table, name: str) -> None:
        if name not in rows.schema.names:
            return
        column = rows.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        if not pa.types.is_integer(column.type) or column.null_count == len(column):
            return
        ends = pc.min_max(column).as_py()
        self.first = ends["min"] if self.first is None else min(self.first, ends["min"])
        self.last = ends["max"] if self.last is None else max(self.last, ends["max"])


def _encoding(schema: pa.Schema) -> dict[str, object]:
    """Encoding per column: dictionaries for names, deltas for counters, plain for the rest."""
    counters = {field.name for field in schema if pa.types.is_int64(field.type)}
    counters |= {field.name for field in schema if pa.types.is_timestamp(field.type)}
    repeating = [
        field.name
        for field in schema
        if field.name not in UNIQUE
        and (pa.types.is_string(field.type) or pa.types.is_large_string(field.type))
    ]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": repeating,
        "column_encoding": dict.fromkeys(counters, "DELTA_BINARY_PACKED") or None,
        "write_page_checksum": True,
        "store_schema": False,  # else Arrow readers would get other types than everyone else
    }


def _create(path: Path) -> _ChecksummedFile:
    """Create a file, also if its empty folder is removed meanwhile."""
    while True:
        make_folder(path.parent)
        with suppress(FileNotFoundError):
            return _ChecksummedFile(path)


def sync_file(path: Path) -> None:
    """Sync the content of a file to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
