"""Typical jobs of Spark, and an archive of the classes that they load: tables, streams, SQL, Python.

Usage: python tests/spark/typical.py ARCHIVE_OF_JAVA ARCHIVE_OF_SPARK
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from tempfile import TemporaryDirectory

from pyspark import SparkContext
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.spark.jvm import java_home

ROWS = 20

Rows = Iterator[tuple[int, str]]
Place = dict[str, int]


class Reader(DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Rows:
        return rows(0, ROWS)


class StreamReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> Place:  # noqa: N802 - Spark's name
        return {"number": 0}

    def read(self, start: Place) -> tuple[Rows, Place]:
        return rows(start["number"], ROWS), {"number": ROWS}

    def readBetweenOffsets(self, start: Place, end: Place) -> Rows:  # noqa: N802 - Spark's name
        return rows(start["number"], end["number"])


class StreamWriter(DataSourceStreamWriter):
    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Numbers(DataSource):
    """Source and sink in Python."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "id bigint, text string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader()

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        return StreamReader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter()


def rows(first: int, end: int) -> Rows:
    return iter([(number, '{"a": 1}') for number in range(first, end)])


def run_jobs(spark: SparkSession, folder: str) -> None:
    """A table is written and queried, and a stream goes to files and to a sink in Python."""
    spark.dataSource.register(Numbers)
    table = spark.read.format("numbers").load()
    fields = ("id", "text", "from_json(text, 'a int').a AS a", "timestamp_seconds(id) AS at")
    table.selectExpr(*fields).write.mode("overwrite").parquet(f"{folder}/table")
    written = spark.read.parquet(f"{folder}/table")
    written.createOrReplaceTempView("written")
    spark.sql(
        "SELECT a, count(*), sum(id), max(at), lag(a) OVER (ORDER BY a) FROM written JOIN range(9) USING (id)"
        " GROUP BY a ORDER BY a"
    ).collect()
    written.mapInArrow(lambda batches: batches, written.schema).count()
    stream = spark.readStream.format("numbers").load()
    for sink in ("parquet", "numbers"):
        places = {"path": f"{folder}/{sink}", "checkpointLocation": f"{folder}/{sink}-checkpoint"}
        query = stream.writeStream.format(sink).options(**places).trigger(once=True).start()
        query.awaitTermination()


def archive_classes(base: str, top: str) -> None:
    """Run the jobs in a JVM that archives its classes when it ends.

    Args:
        base: archive of Java's own classes, which not every Java comes with.
        top: archive of all others.
    """
    os.environ |= {"JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    java = [os.environ["JAVA_HOME"] + "/bin/java", "-Xshare:dump", f"-XX:SharedArchiveFile={base}"]
    subprocess.run(java, stdout=subprocess.DEVNULL, check=True)
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable"]
    archives = [f"-XX:SharedArchiveFile={base}", f"-XX:ArchiveClassesAtExit={top}"]
    confs: dict[str, bool | float | int | str | None] = {
        "spark.driver.extraJavaOptions": " ".join([*options, *archives]),
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.master": "local[1]",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.config(map=confs).getOrCreate()
    gateway = SparkContext._gateway
    assert gateway is not None
    try:
        with TemporaryDirectory() as folder:
            run_jobs(spark, folder)
    finally:  # on a busy machine a job may fail; the classes so far are worth an archive
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # at the end of its input the JVM exits
        gateway.proc.wait()


if __name__ == "__main__":
    archive_classes(*sys.argv[1:])
