"""Writes the rows of a frame as data files of a table. Nothing is visible before a commit names the files."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.pipeline.lake.files import TableWriter
from penstock.pipeline.lake.manifest import DataFile
from penstock.pipeline.lake.splitting import Splitter, by_columns
from penstock.pipeline.lake.table import Table
from penstock.pipeline.lake.tasks import OUTCOMES, as_outcomes, outcomes


def write_table(frame: DataFrame, table: Table, partition_by: Sequence[str] = ()) -> list[DataFile]:
    """Write all rows of a frame, and tell which files there are now.

    Each task writes its own files, one for each partition that it has rows of, in one pass and without a
    shuffle; a frame with few tasks makes few files. Whoever calls commits them, the first time with
    `schema=frame.schema.json()`, where partition columns stand last, or drops them with `drop_files`.
    """
    missing = [name for name in partition_by if name not in frame.columns]
    if missing:
        raise ValueError(f"there is no column {missing[0]!r} to partition by")
    return written(
        outcomes(frame.mapInArrow(partial(_write, table.path, by_columns(partition_by)), OUTCOMES))
    )


def written(values: Iterable[bytes]) -> list[DataFile]:
    """The files that tasks told of."""
    return [msgspec.json.decode(value, type=DataFile) for value in values]


def drop_files(table: Table, files: Iterable[DataFile]) -> None:
    """Delete files that nobody is going to commit; what is live stays, whatever its maker believes."""
    live = table.manifest().files
    for file in files:
        if file.path not in live:
            table.absolute(file).unlink(missing_ok=True)


def write_batches(path: Path, split: Splitter, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
    """Write batches to the files of their partitions; runs on a worker."""
    with TableWriter(path, split) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


def _write(path: Path, split: Splitter, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    files = write_batches(path, split, batches)
    yield as_outcomes(msgspec.json.encode(file) for file in files)
