"""Writes data files: one for each partition that rows come for.

Row groups are gathered in memory up to a bound. A file has checksums in its pages, and gets its name when it
is whole and on the disk. What is not finished is removed; what is finished and never committed is left to
`cleaning.py`.
"""

import io
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.lake.layout import partition_folder
from penstock.pipeline.lake.manifest import DataFile, Partition
from penstock.pipeline.lake.splitting import Splitter
from penstock.pipeline.lake.table import make_folder, sync_folder

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SUFFIX = ".parquet"
DRAFT_SUFFIX = ".draft"

GROUP_ROWS = 131_072
GROUP_BYTES = 32 << 20
"""What is gathered for one row group."""
WAITING_BYTES = 128 << 20
"""What all partitions together gather, before the largest has to be written."""
FILE_BYTES = 512 << 20
"""Where a file ends and the next one begins."""

OFFSET, TIME = "offset", "published_at"
UNIQUE = ("message_id", "correlation_id")
"""Columns whose values hardly repeat: a dictionary of them would be as long as they are."""


class TableWriter:
    """Writes the rows of one task to the files of their partitions; use it with `with`."""

    def __init__(self, path: Path, split: Splitter, file_bytes: int = FILE_BYTES) -> None:
        self._path = path
        self._split = split
        self._file_bytes = file_bytes
        self._open: dict[Partition, _File] = {}
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
        """Take rows; they are written when enough are together."""
        for partition, rows in self._split(batch):
            file = self._open.get(partition)
            if file is None:
                file = self._open[partition] = _File(self._path, partition, rows.schema)
            self._waiting_bytes += file.add(rows)
            if file.is_full:
                self._flush(file)
        while self._waiting_bytes > WAITING_BYTES:
            self._flush(max(self._open.values(), key=lambda file: file.waiting_bytes))

    def finish(self) -> list[DataFile]:
        """Write the rest, make it last, and tell which files there are."""
        for file in self._open.values():
            self._done.append(file.finish())
        self._open.clear()
        for folder in {(self._path / file.path).parent for file in self._done}:
            sync_folder(folder)
        return list(self._done)

    def _flush(self, file: "_File") -> None:
        self._waiting_bytes -= file.flush()
        if file.size >= self._file_bytes:
            self._done.append(file.finish())
            del self._open[file.partition]


class _File:
    """A Parquet file that is being written."""

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
        self._offsets, self._times = _Ends(), _Ends()

    @property
    def is_full(self) -> bool:
        """Whether enough is together for a row group."""
        return self._waiting_rows >= GROUP_ROWS or self.waiting_bytes >= GROUP_BYTES

    @property
    def size(self) -> int:
        """How many bytes are written."""
        return self._sink.tell()

    def add(self, rows: pa.RecordBatch) -> int:
        """Take rows, and tell how many bytes they are."""
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self.waiting_bytes += rows.nbytes
        return int(rows.nbytes)

    def flush(self) -> int:
        """Write a row group of what is there, and tell how many bytes were waiting."""
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
        """Give the file its name, when it is on the disk."""
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
        """Leave nothing behind."""
        with suppress(OSError, pa.ArrowException):  # if the disk is full, that has been told
            self._writer.close()
            self._sink.close()
        self._draft.unlink(missing_ok=True)


class _Sink(io.BufferedWriter):
    """A file that knows the checksum of what was written to it, from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "w"))
        self.crc = 0

    def write(self, data: "ReadableBuffer") -> int:
        self.crc = crc32(data, self.crc)
        return super().write(data)


class _Ends:
    """The least and the greatest of a column, if there is such a column of numbers or times."""

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
    """How columns are written: names by dictionary, counters by difference, the rest as it is."""
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
        "store_schema": False,  # or readers of Arrow would get types that others do not see
    }


def _create(path: Path) -> _Sink:
    """A new file, in a folder that may be removed while it is empty."""
    while True:
        make_folder(path.parent)
        with suppress(FileNotFoundError):
            return _Sink(path)


def sync_file(path: Path) -> None:
    """Make what is in a file last."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
