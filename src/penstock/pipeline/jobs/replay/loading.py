"""Stages slices ahead of their time: Spark reads a load of them, and each becomes a stage of its own."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.errors import Conflict
from penstock.pipeline.jobs.replay.messages import SCHEMA, Recast
from penstock.pipeline.jobs.replay.reading import Messages
from penstock.pipeline.jobs.replay.slices import Load
from penstock.pipeline.jobs.replay.state import Plan
from penstock.pipeline.lake.tasks import interrupting
from penstock.pipeline.sink.staging import StageWriter
from penstock.pipeline.source.connection import Connection
from penstock.pipeline.source.offsets import cursor_at

Stages = dict[int, str]
"""The stage of each slice, by its number; it has all rows of the slice."""

_STAGED = pa.schema({"slice": pa.int32(), "id": pa.string(), "rows": pa.int64()})


class Loading(NamedTuple):
    """What is staged, and where to."""

    spark: SparkSession
    messages: Messages
    plan: Plan
    prefix: str
    connection: Connection
    run: str
    """One life of whoever commits."""

    def stage(self, load: Load) -> Stages:
        """Stage the slices of a load.

        Raises:
            Conflict: the messages are not those that were planned with.
        """
        plan, slices = self.plan, self.plan.slices[load.begin : load.end]
        first, last = slices[0].first, slices[-1].last
        frame = self.messages.between(cursor_at(plan.log, first - 1), cursor_at(plan.log, last))
        recast = Recast(self.prefix, plan.log.log_id, load.begin, tuple(part.last for part in slices))
        staged = (
            frame.mapInArrow(recast.batches, from_arrow_schema(SCHEMA))
            .repartition(self._tasks(len(slices)), "slice")  # Spark finds so few rows not worth two tasks
            .sortWithinPartitions("slice", "offset")
            .mapInArrow(partial(_stage, self.connection, plan.id, self.run), from_arrow_schema(_STAGED))
            .collect()
        )
        return self._checked(load, {row["slice"]: (row["id"], row["rows"]) for row in staged})

    def _tasks(self, slices: int) -> int:
        return min(slices, int(self.spark.conf.get("spark.sql.shuffle.partitions") or 1))

    def _checked(self, load: Load, staged: dict[int, tuple[str, int]]) -> Stages:
        for number in range(load.begin, load.end):
            part, rows = self.plan.slices[number], staged.get(number, ("", 0))[1]
            if rows != part.rows:
                raise Conflict(
                    f"offsets {part.first} to {part.last} had {part.rows} messages when this was planned, "
                    f"and have {rows} now: begin anew with --again"
                )
        return {number: id for number, (id, _) in staged.items()}


def _stage(
    connection: Connection, replay: str, run: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: stage slice after slice; their rows come in order."""
    task = TaskContext.get()
    assert task is not None, "slices are staged by tasks"
    for number, pieces in groupby(_by_slice(batches), itemgetter(0)):
        writer = StageWriter(connection, f"{replay}:{number}", "0", run, str(task.taskAttemptId()))
        rows = writer.write(rows for _, rows in pieces)
        yield pa.RecordBatch.from_pylist([{"slice": number, "id": writer.id, "rows": rows}], _STAGED)


def _by_slice(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows with the number of their slice, cut where that changes."""
    for batch in batches:
        numbers = batch.column("slice").to_numpy()
        ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        rows = batch.drop_columns(["slice", "offset"])
        for start, end in pairwise([0, *ends]):
            if start < end:
                yield int(numbers[start]), rows.slice(start, end - start)


class Ahead:
    """Stages loads in a thread of its own, one ahead of whoever takes them, for the length of a block."""

    def __init__(self, spark: SparkSession, stage: Callable[[Load], Stages]) -> None:
        self._spark = spark
        self._stage = stage
        self._ending = threading.Event()
        self._pool = ThreadPoolExecutor(1, "replay")

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._pool.shutdown(cancel_futures=True)

    def take(self, loads: Iterable[Load]) -> "Iterator[tuple[Load, Future[Stages]]]":
        """Loads in their order, each on its way into stages while the one before is being published."""
        coming: tuple[Load, Future[Stages]] | None = None
        for load in loads:
            following = load, self._pool.submit(self._run, load)
            if coming is not None:
                yield coming
            coming = following
        if coming is not None:
            yield coming

    def _run(self, load: Load) -> Stages:
        with interrupting(self._spark, self._ending):
            return self._stage(load)
