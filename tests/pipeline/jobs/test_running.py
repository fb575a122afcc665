"""A job gets what it needs, is told to stop by signals, and its report says how it went."""

import os
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import PySparkRuntimeError

from penstock.pipeline.jobs import Progress, Report
from penstock.pipeline.jobs.failures import SparkFailed
from penstock.pipeline.jobs.running import run, stopped_by_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = cast("SparkSession", object())
"""These jobs do nothing with it."""


def count(steps: int, *, spark: "SparkSession", progress: Progress, stopping: threading.Event) -> Report:
    """A job that counts, and can be told to stop."""
    done = 0
    while done < steps and not stopping.is_set():
        done += 1
        progress.show(f"step {done}")
    return Report(job="count", facts={"steps": done})


class Told:
    """Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show(self, text: str) -> None:
        self.lines.append(text)

    def note(self, text: str) -> None:
        self.lines.append(f"note: {text}")


def test_a_job_runs_to_its_end_and_the_report_says_how_long_it_took() -> None:
    told = Told()
    report = run(partial(count, 2), SPARK, told)
    assert report.facts == {"steps": 2}
    assert told.lines == ["step 1", "step 2"]
    assert report.took_s >= 0
    assert report.is_clean
    assert not report.was_stopped


def test_a_job_that_was_told_to_stop_says_so() -> None:
    stopping = threading.Event()
    stopping.set()
    report = run(partial(count, 2), SPARK, stopping=stopping)
    assert report.facts == {"steps": 0}
    assert report.was_stopped


def test_what_spark_raises_becomes_an_error_with_its_sentence() -> None:
    def fail(**_: Any) -> Report:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    with pytest.raises(SparkFailed, match="Java gateway process exited") as caught:
        run(fail, SPARK)
    assert isinstance(caught.value.__cause__, PySparkRuntimeError)


def test_what_a_job_raises_itself_is_left_as_it_is() -> None:
    def fail(**_: Any) -> Report:
        raise LookupError("a mistake")

    with pytest.raises(LookupError, match="a mistake"):
        run(fail, SPARK)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_to_stop_and_the_second_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stopping = threading.Event()
    told: list[bool] = []
    with stopped_by_signals(stopping, lambda: told.append(stopping.is_set())):
        os.kill(os.getpid(), number)
        assert stopping.wait(5)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert told == [True]
    assert signal.getsignal(number) is before


def test_a_thread_that_hears_no_signals_leaves_them_alone() -> None:
    seen: list[Any] = []

    def look() -> None:
        with stopped_by_signals(threading.Event()):
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
