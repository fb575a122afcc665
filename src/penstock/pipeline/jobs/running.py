"""How a job is run: what it is given, how it is told to stop, and how long it took."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from penstock.pipeline.jobs.failures import SparkFailed, is_of_spark, root_cause
from penstock.pipeline.jobs.report import Report
from penstock.pipeline.source.connection import impatient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Progress(Protocol):
    """What a job tells while it runs."""

    def show(self, text: str) -> None:
        """Where it is now, in one line that replaces the one before; call it as often as you like."""

    def note(self, text: str) -> None:
        """Something that has to stay readable, in a line of its own."""


class Silence:
    """Progress for those who do not want to know."""

    def show(self, text: str) -> None:
        """Nothing is shown."""

    def note(self, text: str) -> None:
        """Nothing is noted."""


class Job(Protocol):
    """One piece of work, with its options in it already: mostly a `partial` of a function and its options.

    When `stopping` is set it finishes or drops the step in hand and gives its report, within seconds. It
    waits with `stopping.wait(seconds)`, never with a sleep.
    """

    def __call__(self, *, spark: "SparkSession", progress: Progress, stopping: threading.Event) -> Report: ...


def run(
    job: Job, spark: "SparkSession", progress: Progress | None = None, stopping: threading.Event | None = None
) -> Report:
    """Run a job to its end, or until `stopping` is set.

    Raises:
        SparkFailed: instead of what Spark raises, which cannot be read any more when Spark has gone.
    """
    stopping = stopping or threading.Event()
    began = time.monotonic()
    try:
        with impatient(stopping):
            report = job(spark=spark, progress=progress or Silence(), stopping=stopping)
    except Exception as error:
        if is_of_spark(error):
            raise SparkFailed(root_cause(error)) from error
        raise
    report.took_s = round(time.monotonic() - began, 3)
    report.was_stopped = stopping.is_set()
    return report


@contextmanager
def stopped_by_signals(
    stopping: threading.Event, on_stop: Callable[[], None] | None = None
) -> Iterator[None]:
    """Let SIGINT and SIGTERM set an event; a second one raises KeyboardInterrupt.

    Only the main thread hears signals; in any other this does nothing.

    Args:
        on_stop: called at the first one, in the midst of whatever goes on: it may not write anything.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()
        if on_stop is not None:
            on_stop()

    before = {each: signal.signal(each, on_signal) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
