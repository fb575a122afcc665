"""Runs Python work on the machines of a cluster: each task gets its own piece, and only outcomes come back.

Rows that such a task reads and writes by itself never pass through the JVM.
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
"""The schema of what tasks give back, as Spark writes it."""
OUTCOME_SCHEMA = pa.schema({"outcome": pa.binary()})

PATIENCE_S = 5.0
"""How long tasks may go on when the job is to stop."""
_LOOK_EVERY_S = 0.2


class Interrupted(Exception):
    """The tasks were cut short because the job is to stop; nothing of them counts."""


def run_tasks(
    spark: SparkSession,
    pieces: Sequence[T],
    work: Callable[[T], Iterable[bytes]],
    stopping: threading.Event | None = None,
) -> list[bytes]:
    """Do some work for each of the pieces, one task each, and gather the outcomes in no certain order.

    A task that fails is tried again elsewhere, as Spark does; only the outcomes of the last try count. Work
    and pieces travel by pickle.

    Raises:
        Interrupted: `stopping` was set, and the tasks did not end soon.
    """
    if not pieces:
        return []
    frame = spark.range(0, len(pieces), 1, numPartitions=len(pieces))
    with interrupting(spark, stopping):
        return outcomes(frame.mapInArrow(partial(_do, work, list(pieces)), OUTCOMES))


def outcomes(frame: DataFrame) -> list[bytes]:
    """Run tasks that give back outcomes."""
    return [bytes(row.outcome) for row in frame.collect()]


def as_outcomes(values: Iterable[bytes]) -> pa.RecordBatch:
    """Outcomes as a task gives them back."""
    return pa.record_batch([pa.array(list(values), pa.binary())], schema=OUTCOME_SCHEMA)


def _do(
    work: Callable[[T], Iterable[bytes]], pieces: list[T], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield as_outcomes(work(pieces[number]))


@contextmanager
def interrupting(spark: SparkSession, stopping: threading.Event | None) -> Iterator[None]:
    """Cut short what Spark does within, a while after `stopping` was set.

    Raises:
        Interrupted: it was cut short.
    """
    if stopping is None:
        yield
        return
    tag, over, was_cut = f"penstock-{token_hex(8)}", threading.Event(), threading.Event()

    def watch() -> None:
        while not stopping.is_set():
            if over.wait(_LOOK_EVERY_S):
                return
        pause_s = PATIENCE_S
        while not over.wait(pause_s):  # more than once, as nothing may be running at that very moment
            was_cut.set()
            spark.sparkContext.cancelJobsWithTag(tag)
            pause_s = _LOOK_EVERY_S

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
