"""Where the pipeline is measured: a server with a log, Spark, and the same rows as Parquet files."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from penstock.cli.bench.problems import BenchError
from penstock.cli.bench.targets import LOOPBACK
from penstock.cli.bench.trials.made import Plant, make_log
from penstock.cli.bench.trials.serving import Server
from penstock.client import HttpClient

PLANT = Plant(topics=1_000, step_us=100)
TAIL_ROWS = 5_000
"""Rows that are not sealed: the newest of a log never are."""
STEPS = 4
"""Into how many batches a stream is cut."""
PATIENCE_S = 60.0


class Steps(Struct):
    """What the batches of one streaming query had, and how long each took."""

    rows: int = 0
    milliseconds: list[float] = []

    @property
    def seconds(self) -> float:
        """What all batches took, without the start and the end of the query."""
        return sum(self.milliseconds) / 1_000


class Site:
    """Everything that is measured, and what it is measured with."""

    def __init__(self, folder: Path, server: Server, spark: SparkSession, rows: int) -> None:
        self.server = server
        self.spark = spark
        self.rows = rows
        self.step_rows = -(-rows // STEPS)
        self.cores = spark.sparkContext.defaultParallelism
        self.tail_cursor = self._find_tail()
        """Behind the last sealed row."""
        self._folder = folder
        self._numbers = count(1)
        self._parquet = folder / "parquet"

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server.http_port}"

    def _find_tail(self) -> str:
        with HttpClient(self.address) as client:
            return client.ranges(1, limit_rows=self.rows - TAIL_ROWS).until

    @contextmanager
    def fresh(self, name: str) -> Iterator[Path]:
        """A folder that nobody had before; it is gone afterwards."""
        folder = self._folder / f"{name}-{next(self._numbers)}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def log(self, **options: object) -> DataFrame:
        """The log as a stream."""
        given = {"address": self.address, **options}
        reader = self.spark.readStream.format("penstock")
        return reader.options(**{name: str(value) for name, value in given.items()}).load()

    def files(self) -> DataFrame:
        """The same rows as a stream of Parquet files, in as many batches."""
        if not self._parquet.exists():
            read = self.spark.read.format("penstock").option("address", self.address)
            read.option("parallelism", STEPS * self.cores).load().write.parquet(str(self._parquet))
        number = len([*self._parquet.glob("*.parquet")])
        stored = self.spark.read.parquet(str(self._parquet))
        reader = self.spark.readStream.schema(stored.schema)
        return reader.option("maxFilesPerTrigger", -(-number // STEPS)).parquet(str(self._parquet))

    def run_through(self, writer: DataStreamWriter) -> Steps:
        """Let a query have all rows, and tell what its batches were."""
        with self.fresh("checkpoint") as checkpoint, watched(self.spark) as steps:
            query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
            query.awaitTermination()
        return self.checked(steps)

    def run_for(self, frame: DataFrame, batches: int) -> Steps:
        """Let a query to nowhere have so many batches, each as soon as the last one is over."""
        with self.fresh("checkpoint") as checkpoint, watched(self.spark) as steps:
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
            query = writer.start()
            while len(steps.milliseconds) < batches and not query.awaitTermination(0.1):
                pass
            query.stop()
        return steps

    def checked(self, steps: Steps) -> Steps:
        """What was measured, if it was the work that was meant."""
        if steps.rows != self.rows:
            raise BenchError(f"a query had {steps.rows:,} of {self.rows:,} rows")
        return steps


class _Listener(StreamingQueryListener):
    """Notes the batches of the one query that runs."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.is_over = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing was done yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is over."""
        if event.progress.numInputRows:
            self.steps.rows += event.progress.numInputRows
            self.steps.milliseconds.append(event.progress.durationMs["triggerExecution"])

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """There was nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """No further batch comes."""
        self.is_over.set()


@contextmanager
def watched(spark: SparkSession) -> Iterator[Steps]:
    """The batches of the query that runs inside; all are told afterwards."""
    listener = _Listener()
    spark.streams.addListener(listener)
    try:
        yield listener.steps
        if not listener.is_over.wait(PATIENCE_S):
            raise BenchError("Spark did not tell of the end of a query")
    finally:
        spark.streams.removeListener(listener)


@contextmanager
def serving(folder: Path, rows: int) -> Iterator[Server]:
    """A server with so many rows in its log, on the first core; it keeps nothing else."""
    make_log(folder / "data", rows - TAIL_ROWS, TAIL_ROWS, PLANT)
    cpu = min(os.sched_getaffinity(0))
    server = Server(folder, cpu, has_http=True, log__capture="plant/#", log__retention_s=0)
    server.start()
    try:
        yield server
    finally:
        server.stop()
