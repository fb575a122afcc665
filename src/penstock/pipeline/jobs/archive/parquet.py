"""Batches as Parquet files of the lake's own table.

Each task reads its part of the log and writes it in the same process, so rows never pass through the JVM.
"""

import json
import threading
from collections.abc import Iterable, Sequence
from functools import partial, reduce
from pathlib import Path

import msgspec
import pyarrow as pa
from msgspec import Struct, field
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import DateType, IntegerType

from penstock.client import Gap
from penstock.pipeline.jobs.archive.writers import Written
from penstock.pipeline.lake import Change, DataFile, InvalidLake, Manifest, Table, drop_files, lake_messages
from penstock.pipeline.lake.layout import BUCKET, DATE
from penstock.pipeline.lake.manifest import Epoch, join_epochs
from penstock.pipeline.lake.splitting import by_date_and_bucket
from penstock.pipeline.lake.tasks import run_tasks
from penstock.pipeline.lake.writing import write_batches
from penstock.pipeline.source.connection import Connection
from penstock.pipeline.source.live import Portion
from penstock.pipeline.source.log_part import LogPart, read_log_part
from penstock.pipeline.source.missing import Losses
from penstock.pipeline.source.schema import EPOCH, OFFSET, log_schema
from penstock.pipeline.source.shaping import Shape, resize

SCHEMA = json.dumps(log_schema().add(DATE, DateType()).add(BUCKET, IntegerType()).jsonValue())
"""The columns of messages in a lake, as a manifest has them."""


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
        """Refuse a folder that belongs to Delta."""
        refuse_delta(self.table)

    def announce(self, manifest: Manifest, portion: Portion) -> Change | None:
        """Files that nobody commits are nobody's: nothing has to be announced."""
        return None

    def write(self, manifest: Manifest, portion: Portion) -> Written:
        """Write the parts of a batch side by side."""
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
    """Leave a folder alone that belongs to Delta.

    Raises:
        InvalidLake: it does.
    """
    if table.is_delta:
        raise InvalidLake(f"{table.path} is a Delta table: archive to it with --format delta")


class PartTask(Struct, frozen=True, kw_only=True):
    """What each task of a batch is told."""

    folder: str
    buckets: int
    connection: Connection
    filters: tuple[str, ...]


class PartDone(Struct, frozen=True, kw_only=True):
    """What a task answers."""

    files: list[DataFile]
    gaps: list[Gap]
    epochs: dict[int, Epoch] = {}


class _Noted(Losses, frozen=True):
    """Missing ranges are for the driver to judge."""

    found: list[Gap] = field(default_factory=list)

    def declare(self, gaps: Sequence[Gap], after: str, until: str) -> None:
        self.found.extend(gaps)


def _noted(batch: pa.RecordBatch, epochs: dict[int, Epoch]) -> pa.RecordBatch:
    """The same rows; where their epochs begin is noted."""
    firsts = pa.Table.from_batches([batch]).group_by(EPOCH).aggregate([(OFFSET, "min")])
    numbers, offsets = firsts.column(EPOCH).to_pylist(), firsts.column(f"{OFFSET}_min").to_pylist()
    found = {number: Epoch(first=first) for number, first in zip(numbers, offsets, strict=True)}
    epochs.update(join_epochs(epochs, found))
    return batch


def _write_part(task: PartTask, part: InputPartition) -> Iterable[bytes]:
    """Copy one part of the log; runs on a worker."""
    assert isinstance(part, LogPart)
    shape, losses = Shape(log_schema()), _Noted()
    rows = read_log_part(part, task.connection, task.filters, shape.needed.names, losses)
    epochs: dict[int, Epoch] = {}
    batches = resize(_noted(shape.shape(batch), epochs) for batch in rows)
    files = write_batches(Path(task.folder), by_date_and_bucket(task.buckets), batches)
    return [msgspec.json.encode(PartDone(files=files, gaps=losses.found, epochs=epochs))]
