"""Batches as transactions of a Delta table, where Spark has Delta's jars.

Delta commits by itself, so the manifest, which lies beside the table, says what is about to be written: after
a crash the same batch is written again under the same number, and Delta skips what it has already.
"""

import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from penstock.pipeline.jobs.archive.options import ArchiveOptions
from penstock.pipeline.jobs.archive.writers import Written
from penstock.pipeline.jobs.failures import is_of_spark
from penstock.pipeline.lake import Change, Intent, InvalidLake, Manifest, Table, lake_path, missing_folder
from penstock.pipeline.lake.layout import BUCKET, DATE, MESSAGES
from penstock.pipeline.lake.tasks import interrupting
from penstock.pipeline.source.live import Portion

FORMAT = "delta"
STATE = "_archive"
"""Where the manifest lies, in the lake's folder."""

_NO_JARS = "DATA_SOURCE_NOT_FOUND"
"""What Spark says of a format that it does not know."""


class DeltaWriter:
    """Writes batches with `format("delta")`."""

    def __init__(self, options: ArchiveOptions, spark: SparkSession, stopping: threading.Event) -> None:
        self.table = state_table(options.lake)
        self._path = lake_path(options.lake) / MESSAGES
        self._options = options
        self._spark = spark
        self._stopping = stopping

    def prepare(self) -> None:
        """Refuse a Spark without Delta, and a table that is ours."""
        if Table(self._path).exists():
            raise InvalidLake(f"{self._path} is a table of Parquet files: leave out --format delta")
        try:
            self._spark.read.format(FORMAT).load(str(self._path))
        except Exception as error:
            if not is_of_spark(error):
                raise
            if _NO_JARS in str(error):  # any other complaint is that the table is not there yet
                raise _no_jars() from None

    def announce(self, manifest: Manifest, portion: Portion) -> Change | None:
        """Say which rows the next transaction has."""
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
        with interrupting(self._spark, self._stopping):
            writing.save(str(self._path))
        return Written(rows=portion.rows)

    def drop(self, written: Written) -> None:
        """What Delta has committed stays; whoever writes the same batch next is skipped."""


def state_table(lake: str) -> Table:
    """The table without files whose manifest says how far the archive is."""
    return Table(lake_path(lake) / STATE)


def with_partitions(frame: DataFrame, buckets: int) -> DataFrame:
    """Messages with the columns of their partition: the same day and bucket as in files of ours."""
    day = F.to_date(F.col("published_at"))
    bucket = F.crc32(F.col("topic").cast("binary")) % buckets
    return frame.withColumn(DATE, day).withColumn(BUCKET, bucket.cast("int"))


def _no_jars() -> InvalidLake:
    return InvalidLake(
        "this Spark cannot write Delta tables: start it with Delta's jars, such as "
        "--conf spark.jars.packages=io.delta:delta-spark_2.13:VERSION, or leave out --format delta"
    )
