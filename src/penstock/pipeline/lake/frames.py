"""The live files of a table as a Spark frame; page checksums are verified on the way."""

import json
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.pipeline.lake.manifest import Manifest
from penstock.pipeline.lake.table import Table, no_table

_VERIFY = "parquet.page.verify-checksum.enabled"


def read_table(
    spark: SparkSession, manifest: Manifest | None, table: Table, columns: Sequence[str] | None = None
) -> DataFrame:
    """The rows of a table, with the columns of its partitions last.

    Args:
        manifest: what to read; None for the newest, whose files are still there.

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
            # files were deleted after a newer manifest had retired them


def _read(spark: SparkSession, manifest: Manifest, table: Table, columns: Sequence[str] | None) -> DataFrame:
    schema = schema_of(manifest, table)
    paths = [str(table.absolute(file)) for file in manifest.files.values()]
    if paths:
        reader = spark.read.schema(schema).option("basePath", str(table.path)).option(_VERIFY, "true")
        frame = reader.option("__globPaths__", "false").parquet(*paths)  # these are names, not patterns
    else:
        frame = spark.createDataFrame([], schema)
    return frame if columns is None else frame.select(*columns)


def schema_of(manifest: Manifest, table: Table) -> StructType:
    """The columns of a table.

    Raises:
        InvalidLake: nothing was ever written to it.
    """
    if manifest.schema is None:
        raise no_table(table)
    return StructType.fromJson(json.loads(manifest.schema))
