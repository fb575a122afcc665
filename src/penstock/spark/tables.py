"""Lake tables as Spark DataFrames: reading the live files, and writing rows as new files.

Reads verify page checksums. Written files are invisible until a commit names them.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.lake.manifest import DataFile, Manifest
from penstock.lake.table import Table, no_such_table
from penstock.lake.writer import Splitter, by_columns, write_batches
from penstock.spark.tasks import OUTCOMES, collect_outcomes, to_outcomes

_VERIFY = "parquet.page.verify-checksum.enabled"


def read_table(
    spark: SparkSession, manifest: Manifest | None, table: Table, columns: Sequence[str] | None = None
) -> DataFrame:
    """The rows of a table, with its partition columns last.

    Args:
        manifest: the version to read; None for the newest.

    Raises:
        InvalidLake: nothing was ever written to this table.
    """
    if manifest is not None:
        return _read(spark, manifest, table, columns)
    while True:
        manifest = table.manifest()
        try:
            return _read(spark, manifest, table, columns)
        except AnalysisException:
            if table.newest() == manifest.version:
                raise
            # a newer version retired files, and they were deleted


def _read(spark: SparkSession, manifest: Manifest, table: Table, columns: Sequence[str] | None) -> DataFrame:
    schema = schema_of(manifest, table)
    paths = [str(table.absolute(file)) for file in manifest.files.values()]
    if paths:
        reader = spark.read.schema(schema).option("basePath", str(table.path)).option(_VERIFY, "true")
        frame = reader.option("__globPaths__", "false").parquet(*paths)  # paths, not patterns
    else:
        frame = spark.createDataFrame([], schema)
    return frame if columns is None else frame.select(*columns)


def schema_of(manifest: Manifest, table: Table) -> StructType:
    """The columns of a table.

    Raises:
        InvalidLake: nothing was ever written to it.
    """
    if manifest.schema is None:
        raise no_such_table(table)
    return StructType.fromJson(json.loads(manifest.schema))


def write_table(frame: DataFrame, table: Table, partition_by: Sequence[str] = ()) -> list[DataFile]:
    """Write all rows of a DataFrame, and return the new files.

    Each task writes its own files, one per partition that it has rows of, in one pass and without a shuffle;
    a DataFrame of few tasks makes few files. The caller commits the files, the first time with
    `schema=frame.schema.json()`, where partition columns come last, or deletes them with `drop_files`.
    """
    missing = [name for name in partition_by if name not in frame.columns]
    if missing:
        raise ValueError(f"there is no column {missing[0]!r} to partition by")
    return decode_files(
        collect_outcomes(frame.mapInArrow(partial(_write, table.path, by_columns(partition_by)), OUTCOMES))
    )


def decode_files(values: Iterable[bytes]) -> list[DataFile]:
    """The files that tasks report."""
    return [msgspec.json.decode(value, type=DataFile) for value in values]


def _write(path: Path, split: Splitter, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    files = write_batches(path, split, batches)
    yield to_outcomes(msgspec.json.encode(file) for file in files)
