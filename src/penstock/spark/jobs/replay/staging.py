"""Staging of slices ahead of publishing: Spark reads a load, and each slice becomes a stage."""

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
from penstock.spark.connection import Connection
from penstock.spark.jobs.replay.messages import SCHEMA, MessageBuilder, ReplayMessages
from penstock.spark.jobs.replay.plan import Load, Plan
from penstock.spark.sink.staging import StageWriter
from penstock.spark.source.positions import cursor_at
from penstock.spark.tasks import interruptible

Stages = dict[int, str]
"""The complete stage of each slice, by number."""

_STAGED = pa.schema({"slice": pa.int32(), "id": pa.string(), "rows": pa.int64()})


class SliceStaging(NamedTuple):
    """Stages slices of a plan on a server."""

    spark: SparkSession
    messages: ReplayMessages
    plan: Plan
    prefix: str
    connection: Connection
    run: str
    """One run of the committer."""

    def stage(self, load: Load) -> Stages:
        """Stage the slices of a load.

        Raises:
            Conflict: the messages differ from the plan.
        """
        plan, slices = self.plan, self.plan.slices[load.begin : load.end]
        first, last = slices[0].first, slices[-1].last
        frame = self.messages.between(cursor_at(plan.log, first - 1), cursor_at(plan.log, last))
        recast = MessageBuilder(self.prefix, plan.log.log_id, load.begin, tuple(part.last for part in slices))
        staged = (
            frame.mapInArrow(recast.batches, from_arrow_schema(SCHEMA))
            .repartition(self._tasks(len(slices)), "slice")  # else Spark would use one task for few rows
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
                    f"offsets {part.first} to {part.last} had {part.rows} messages in the plan, "
                    f"and have {rows} now: start over with --again"
                )
        return {number: id for number, (id, _) in staged.items()}


def _stage(
    connection: Connection, replay: str, run: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Task: stage slice after slice; their rows arrive in order."""
    task = TaskContext.get()
    assert task is not None, "slices are staged by tasks"
    for number, pieces in groupby(_by_slice(batches), itemgetter(0)):
        writer = StageWriter(connection, f"{replay}:{number}", "0", run, str(task.taskAttemptId()))
        rows = writer.write(rows for _, rows in pieces)
        yield pa.RecordBatch.from_pylist([{"slice": number, "id": writer.id, "rows": rows}], _STAGED)


def _by_slice(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows with the number of their slice, split where it changes."""
    for batch in batches:
        numbers = batch.column("slice").to_numpy()
        ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        rows = batch.drop_columns(["slice", "offset"])
        for start, end in pairwise([0, *ends]):
            if start < end:
                yield int(numbers[start]), rows.slice(start, end - start)


class Prefetch:
    """Stages loads in a background thread, one ahead of the consumer; a context manager."""

    def __init__(self, spark: SparkSession, stage: Callable[[Load], Stages]) -> None:
        self._spark = spark
        self._stage = stage
        self._ending = threading.Event()
        self._pool = ThreadPoolExecutor(1, "replay")

    def __enter__(self) -> "Prefetch":
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._pool.shutdown(cancel_futures=True)

    def take(self, plan_loads: Iterable[Load]) -> "Iterator[tuple[Load, Future[Stages]]]":
        """Loads in order, each with the future of its stages."""
        coming: tuple[Load, Future[Stages]] | None = None
        for load in plan_loads:
            following = load, self._pool.submit(self._run, load)
            if coming is not None:
                yield coming
            coming = following
        if coming is not None:
            yield coming

    def _run(self, load: Load) -> Stages:
        with interruptible(self._spark, self._ending):
            return self._stage(load)
