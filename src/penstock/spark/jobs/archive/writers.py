"""Writer of archive batches as Parquet files of the lake's own table, and the interface of writers.

Each task reads its part of the log and writes it in the same process, so rows never pass through the JVM. The
other writer is in `delta.py`.
"""

import json
import threading
from collections.abc import Iterable, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa
from msgspec import Struct, field
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import DateType, IntegerType

from penstock.client import Gap
from penstock.lake import (
    Change,
    DataFile,
    InvalidLake,
    Manifest,
    Table,
    drop_files,
    lake_messages,
)
from penstock.lake.layout import BUCKET, DATE
from penstock.lake.manifest import Epoch, join_epochs
from penstock.lake.writer import by_date_and_bucket, write_batches
from penstock.spark.connection import Connection
from penstock.spark.source.data_loss import LossPolicy
from penstock.spark.source.log_scan import LogPart, Portion, read_log_part
from penstock.spark.source.reader import Projection, resize
from penstock.spark.source.schema import EPOCH, OFFSET, log_schema
from penstock.spark.tasks import run_tasks

SCHEMA = json.dumps(log_schema().add(DATE, DateType()).add(BUCKET, IntegerType()).jsonValue())
"""Columns of messages in a lake, as a manifest stores them."""


class Written(Struct, frozen=True, kw_only=True):
    """Outcome of writing a batch."""

    rows: int
    files: list[DataFile] = []
    gaps: list[Gap] = []
    epochs: dict[int, Epoch] = {}
    """Beginnings of the epochs of these rows."""


class BatchWriter(Protocol):
    """Port: idempotent writer of batches."""

    @property
    def table(self) -> Table:
        """The table whose manifest records the progress of the archive."""
        ...

    def prepare(self) -> None:
        """Check that the destination is writable.

        Raises:
            InvalidLake: it is not.
        """
        ...

    def announce(self, manifest: Manifest, portion: Portion) -> Change | None:
        """The change to commit before the batch is written, if any."""
        ...

    def write(self, manifest: Manifest, portion: Portion) -> Written:
        """Write the rows of a batch durably.

        Raises:
            Interrupted: the job is to stop, and nothing of the batch counts.
        """
        ...

    def drop(self, written: Written) -> None:
        """Undo an uncommitted write, best effort."""
        ...


class ParquetWriter:
    """Writes batches with tasks of a Spark job."""

    def __init__(
        self, lake: str, spark: SparkSession, connection: Connection, stopping: threading.Event
    ) -> None:
        self.table = lake_messages(lake)
        self._spark = spark
        self._connection = connection
        self._stopping = stopping

    def prepare(self) -> None:
        """Refuse a folder of Delta."""
        refuse_delta(self.table)

    def announce(self, manifest: Manifest, portion: Portion) -> Change | None:
        """Nothing to record: uncommitted files are orphans."""
        return None

    def write(self, manifest: Manifest, portion: Portion) -> Written:
        """Write the parts of a batch in parallel."""
        task = PartTask(
            folder=str(self.table.path),
            buckets=manifest.buckets,
            connection=self._connection,
            filters=manifest.filters,
        )
        values = run_tasks(self._spark, portion.parts, partial(_write_part, task), self._stopping)
        done = [msgspec.json.decode(value, type=PartDone) for value in values]
        files = [file for each in done for file in each.files]
        return Written(
            rows=sum(file.rows for file in files),
            files=sorted(files, key=lambda file: file.first_offset or 0),
            gaps=[gap for each in done for gap in each.gaps],
            epochs=reduce(join_epochs, (each.epochs for each in done), {}),
        )

    def drop(self, written: Written) -> None:
        """Delete the files."""
        drop_files(self.table, written.files)


def refuse_delta(table: Table) -> None:
    """Refuse a folder of Delta.

    Raises:
        InvalidLake: it is one.
    """
    if table.is_delta:
        raise InvalidLake(f"{table.path} is a Delta table: archive to it with --format delta")


class PartTask(Struct, frozen=True, kw_only=True):
    """Settings for all tasks of a batch."""

    folder: str
    buckets: int
    connection: Connection
    filters: tuple[str, ...]


class PartDone(Struct, frozen=True, kw_only=True):
    """Outcome of a task."""

    files: list[DataFile]
    gaps: list[Gap]
    epochs: dict[int, Epoch] = {}


class _CollectedGaps(LossPolicy, frozen=True):
    """Collects gaps for the driver instead of raising."""

    found: list[Gap] = field(default_factory=list)

    def declare(self, gaps: Sequence[Gap], after: str, until: str) -> None:
        self.found.extend(gaps)


def _note_epochs(batch: pa.RecordBatch, epochs: dict[int, Epoch]) -> pa.RecordBatch:
    """Record the beginnings of epochs, and return the same rows."""
    firsts = pa.Table.from_batches([batch]).group_by(EPOCH).aggregate([(OFFSET, "min")])
    numbers, offsets = firsts.column(EPOCH).to_pylist(), firsts.column(f"{OFFSET}_min").to_pylist()
    found = {number: Epoch(first=first) for number, first in zip(numbers, offsets, strict=True)}
    epochs.update(join_epochs(epochs, found))
    return batch


def _write_part(task: PartTask, part: InputPartition) -> Iterable[bytes]:
    """Copy one part of the log; runs on a worker."""
    assert isinstance(part, LogPart)
    projection, losses = Projection(log_schema()), _CollectedGaps()
    rows = read_log_part(part, task.connection, task.filters, projection.needed.names, losses)
    epochs: dict[int, Epoch] = {}
    batches = resize(_note_epochs(projection.apply(batch), epochs) for batch in rows)
    files = write_batches(Path(task.folder), by_date_and_bucket(task.buckets), batches)
    return [msgspec.json.encode(PartDone(files=files, gaps=losses.found, epochs=epochs))]
