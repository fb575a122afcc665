"""Writer of archive batches as transactions of a Delta table.

Delta commits on its own. So a manifest beside the table records the batch about to be written: after a crash
the same batch is written again under the same number, and Delta skips it if it has it.
"""

import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from penstock.lake import Change, Intent, InvalidLake, Manifest, Table, lake_path, missing_folder
from penstock.lake.layout import BUCKET, DATE, MESSAGES
from penstock.spark.errors import is_spark_error
from penstock.spark.jobs.archive.options import ArchiveOptions
from penstock.spark.jobs.archive.writers import Written
from penstock.spark.source.log_scan import Portion
from penstock.spark.tasks import interruptible

FORMAT = "delta"
STATE = "_archive"
"""Folder of the manifest of a Delta archive, in the lake."""
_NO_JARS = "DATA_SOURCE_NOT_FOUND"
"""Error class of Spark for an unknown format."""


class DeltaWriter:
    """Writes batches with `format("delta")`."""

    def __init__(self, options: ArchiveOptions, spark: SparkSession, stopping: threading.Event) -> None:
        self.table = state_table(options.lake)
        self._path = lake_path(options.lake) / MESSAGES
        self._options = options
        self._spark = spark
        self._stopping = stopping

    def prepare(self) -> None:
        """Refuse a Spark without Delta, and a table of Penstock."""
        if Table(self._path).exists():
            raise InvalidLake(f"{self._path} is a table of Penstock's own format: leave out --format delta")
        try:
            self._spark.read.format(FORMAT).load(str(self._path))
        except Exception as error:
            if not is_spark_error(error):
                raise
            if _NO_JARS in str(error):  # any other error: the table does not exist yet
                raise _no_jars() from None

    def announce(self, manifest: Manifest, portion: Portion) -> Change | None:
        """Record the rows of the next transaction."""
        if manifest.intent is not None:
            return None
        intent = Intent(batch=manifest.batch + 1, after=portion.after, until=portion.until)
        return Change(by="archive", intent=intent)

    def write(self, manifest: Manifest, portion: Portion) -> Written:
        """Append the rows in one transaction."""
        missing = str(missing_folder(self._options.lake))
        read = self._options.read_options(portion.after, portion.until, manifest.filters, missing)
        frame = with_partitions(self._spark.read.format("penstock").options(**read).load(), manifest.buckets)
        writing = (
            frame.write.format(FORMAT)
            .mode("append")
            .partitionBy(DATE, BUCKET)
            .option("txnAppId", f"penstock-{manifest.id}")
            .option("txnVersion", str(manifest.batch + 1))
        )
        with interruptible(self._spark, self._stopping):
            writing.save(str(self._path))
        return Written(rows=portion.rows)

    def drop(self, written: Written) -> None:
        """Nothing to do: Delta keeps what it committed, and skips the same batch next time."""


def state_table(lake: str) -> Table:
    """The table without files whose manifest records the progress of a Delta archive."""
    return Table(lake_path(lake) / STATE)


def with_partitions(frame: DataFrame, buckets: int) -> DataFrame:
    """Messages with partition columns: the same day and bucket as in a Parquet lake."""
    day = F.to_date(F.col("published_at"))
    bucket = F.crc32(F.col("topic").cast("binary")) % buckets
    return frame.withColumn(DATE, day).withColumn(BUCKET, bucket.cast("int"))


def _no_jars() -> InvalidLake:
    return InvalidLake(
        "this Spark cannot write Delta tables: add Delta's jars, such as "
        "--conf spark.jars.packages=io.delta:delta-spark_2.13:VERSION, or leave out --format delta"
    )
