"""Python tasks on a Spark cluster: each task gets one piece of work, and returns only its outcome.

Rows that a task reads and writes by itself never pass through the JVM.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from secrets import token_hex
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

OUTCOMES = "outcome binary"
"""Schema of the outcomes of tasks, in Spark's DDL."""
OUTCOME_SCHEMA = pa.schema({"outcome": pa.binary()})

STOP_GRACE_S = 5.0
"""Time that running tasks have to finish after a job was asked to stop."""
_POLL_S = 0.2


class Interrupted(Exception):
    """Tasks were cancelled because the job is to stop; nothing of them counts."""


def run_tasks(
    spark: SparkSession,
    pieces: Sequence[T],
    work: Callable[[T], Iterable[bytes]],
    stopping: threading.Event | None = None,
) -> list[bytes]:
    """Run one task per piece, and collect the outcomes in any order.

    Spark retries a failed task elsewhere; only the outcomes of the last try count. Work and pieces travel by
    pickle.

    Raises:
        Interrupted: `stopping` was set, and the tasks did not finish soon.
    """
    if not pieces:
        return []
    frame = spark.range(0, len(pieces), 1, numPartitions=len(pieces))
    with interruptible(spark, stopping):
        return collect_outcomes(frame.mapInArrow(partial(_do, work, list(pieces)), OUTCOMES))


def collect_outcomes(frame: DataFrame) -> list[bytes]:
    """Run tasks and collect their outcomes."""
    return [bytes(row.outcome) for row in frame.collect()]


def to_outcomes(values: Iterable[bytes]) -> pa.RecordBatch:
    """Outcomes as the record batch that a task returns."""
    return pa.record_batch([pa.array(list(values), pa.binary())], schema=OUTCOME_SCHEMA)


def _do(
    work: Callable[[T], Iterable[bytes]], pieces: list[T], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield to_outcomes(work(pieces[number]))


@contextmanager
def interruptible(spark: SparkSession, stopping: threading.Event | None) -> Iterator[None]:
    """Cancel the Spark jobs of the block, a while after `stopping` was set.

    Raises:
        Interrupted: they were cancelled.
    """
    if stopping is None:
        yield
        return
    tag, over, was_cut = f"penstock-{token_hex(8)}", threading.Event(), threading.Event()

    def watch() -> None:
        while not stopping.is_set():
            if over.wait(_POLL_S):
                return
        pause_s = STOP_GRACE_S
        while not over.wait(pause_s):  # repeatedly, as no job may be running at that moment
            was_cut.set()
            spark.sparkContext.cancelJobsWithTag(tag)
            pause_s = _POLL_S

    watcher = threading.Thread(target=watch, name="stopping", daemon=True)
    spark.sparkContext.addJobTag(tag)
    watcher.start()
    try:
        yield
    except (PySparkException, Py4JError):
        if was_cut.is_set():
            raise Interrupted from None
        raise
    finally:
        over.set()
        spark.sparkContext.removeJobTag(tag)
        watcher.join()
