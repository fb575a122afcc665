"""Test site: a server with a log, a Spark session, and the same rows as Parquet files."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.errors import BenchError
from bench.peers.target import LOOPBACK
from bench.trials.log_maker import Plant, make_log
from bench.trials.server import Server
from penstock.client import HttpClient

PLANT = Plant(topics=1_000, step_us=100)
TAIL_ROWS = 5_000
"""Unsealed rows: the newest of a log never are sealed."""
STEPS = 4
"""Batches of a stream."""
TIMEOUT_S = 60.0


class Steps(Struct):
    """Rows and durations of the batches of one streaming query."""

    rows: int = 0
    milliseconds: list[float] = []

    @property
    def seconds(self) -> float:
        """Sum over all batches, without the start and the end of the query."""
        return sum(self.milliseconds) / 1_000


class Site:
    """Server, Spark session and rows of a bench."""

    def __init__(self, folder: Path, server: Server, spark: SparkSession, rows: int) -> None:
        self.server = server
        self.spark = spark
        self.rows = rows
        self.step_rows = -(-rows // STEPS)
        self.cores = spark.sparkContext.defaultParallelism
        self.tail_cursor = self._find_tail()
        """Cursor after the last sealed row."""
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
        """New folder, removed afterwards."""
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
        """Run a query over all rows; returns its batches."""
        with self.fresh("checkpoint") as checkpoint, watched(self.spark) as steps:
            query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
            query.awaitTermination()
        return self.checked(steps)

    def run_for(self, frame: DataFrame, batches: int) -> Steps:
        """Run a query to a no-op sink for this many batches, without pauses."""
        with self.fresh("checkpoint") as checkpoint, watched(self.spark) as steps:
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
            query = writer.start()
            while len(steps.milliseconds) < batches and not query.awaitTermination(0.1):  # type: ignore[arg-type]
                pass
            query.stop()
        return steps

    def checked(self, steps: Steps) -> Steps:
        """Check that all rows were read.

        Raises:
            BenchError: there were more or fewer.
        """
        if steps.rows != self.rows:
            raise BenchError(f"a query had {steps.rows:,} of {self.rows:,} rows")
        return steps


class _Listener(StreamingQueryListener):
    """Records the batches of the one query that runs."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.is_over = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Record a batch."""
        if event.progress.numInputRows:
            self.steps.rows += event.progress.numInputRows
            self.steps.milliseconds.append(event.progress.durationMs["triggerExecution"])

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Notify the end of the query."""
        self.is_over.set()


@contextmanager
def watched(spark: SparkSession) -> Iterator[Steps]:
    """Record the batches of the query that runs inside; complete when the block ends."""
    listener = _Listener()
    spark.streams.addListener(listener)
    try:
        yield listener.steps
        if not listener.is_over.wait(TIMEOUT_S):
            raise BenchError(f"Spark did not report the end of a query within {TIMEOUT_S:.0f} s")
    finally:
        spark.streams.removeListener(listener)


@contextmanager
def serving(folder: Path, rows: int) -> Iterator[Server]:
    """Server with this many rows in its log, on the first core; it captures nothing else."""
    make_log(folder / "data", rows - TAIL_ROWS, TAIL_ROWS, PLANT)
    cpu = min(os.sched_getaffinity(0))
    server = Server(folder, cpu, has_http=True, log__capture="plant/#", log__retention_s=0)
    server.start()
    try:
        yield server
    finally:
        server.stop()
