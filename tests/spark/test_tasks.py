"""Work on Spark's workers, and how it is cut short."""

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from penstock.spark import tasks
from penstock.spark.tasks import Interrupted, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_each_piece_has_a_task_and_outcomes_come_back(spark: "SparkSession") -> None:
    def work(piece: str) -> Iterable[bytes]:
        return [piece.encode()] * len(piece)

    assert sorted(run_tasks(spark, ["a", "bb", ""], work)) == [b"a", b"bb", b"bb"]
    assert run_tasks(spark, [], work) == []


def test_tasks_that_go_on_for_too_long_are_cut_short(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "STOP_GRACE_S", 0.1)
    stopping = threading.Event()
    stopping.set()

    def work(piece: int) -> Iterable[bytes]:
        time.sleep(300)
        return []

    with pytest.raises(Interrupted):
        run_tasks(spark, [1], work, stopping)
    assert run_tasks(spark, [1], lambda piece: [b"well"], threading.Event()) == [b"well"]


def test_a_failing_task_is_a_failure_also_when_it_should_stop(spark: "SparkSession") -> None:
    def work(piece: int) -> Iterable[bytes]:
        raise ValueError("this does not work")

    with pytest.raises(Exception, match="this does not work"):
        run_tasks(spark, [1], work, threading.Event())
