"""Runner of jobs: progress, report, stop signals, and checks of the server before Spark starts.

Spark takes ten seconds to start, and a source waits silently for an unavailable server. So a job checks the
server first: a wrong address fails at once, and a waiting job says what it waits for.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from penstock.client import LogPosition
from penstock.errors import PenstockError
from penstock.spark.connection import Connection, is_busy, is_transient, stop_waiting_on
from penstock.spark.errors import SparkFailed, is_spark_error, root_cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIGNALS = (signal.SIGINT, signal.SIGTERM)
POLL_S = 1.0
FOLLOW_RETRY_S = 600.0
"""Retry time for an unavailable server in the tasks of a job with `follow`."""

Row = dict[str, Any]


class Report(Struct, kw_only=True):
    """Result of a job: facts, then tables of rows.

    Names are lower case with underscores and units (`rows`, `bytes`, `took_s`). Values fit into JSON; a fact
    may be a mapping, which is shown with dots in its names.
    """

    job: str
    facts: Row
    tables: dict[str, list[Row]] = {}
    """Rows by table; all rows of a table have the same columns."""
    is_clean: bool = True
    """Nothing needs attention. Otherwise the command exits with 1."""
    was_stopped: bool = False
    """The job was stopped before its work was done."""
    took_s: float = 0.0
    """Duration without the start of Spark; set at the end."""
    spark_start_s: float | None = None
    """Duration of the start of Spark; None if the job did not need it."""


class Progress(Protocol):
    """Progress display of a running job."""

    def show(self, text: str) -> None:
        """Show the current state in one line that replaces the previous one; cheap to call often."""

    def note(self, text: str) -> None:
        """Print a line that stays."""


class NoProgress:
    """Null object: discards all progress."""

    def show(self, text: str) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Print nothing."""


class Job(Protocol):
    """A job with its options bound, usually a `partial` of a function.

    When `stopping` is set, the job finishes or drops the current step and returns its report within seconds.
    It waits with `stopping.wait(seconds)`, never with a sleep.
    """

    def __call__(self, *, spark: "SparkSession", progress: Progress, stopping: threading.Event) -> Report: ...


def run(
    job: Job, spark: "SparkSession", progress: Progress | None = None, stopping: threading.Event | None = None
) -> Report:
    """Run a job to its end, or until `stopping` is set.

    Raises:
        SparkFailed: in place of Spark's error, whose text is unreadable once Spark has exited.
    """
    stopping = stopping or threading.Event()
    began = time.monotonic()
    try:
        with stop_waiting_on(stopping):
            report = job(spark=spark, progress=progress or NoProgress(), stopping=stopping)
    except Exception as error:
        if is_spark_error(error):
            raise SparkFailed(root_cause(error)) from error
        raise
    report.took_s = round(time.monotonic() - began, 3)
    report.was_stopped = stopping.is_set()
    return report


@contextmanager
def stopped_by_signals(
    stopping: threading.Event, on_stop: Callable[[], None] | None = None
) -> Iterator[None]:
    """Set an event on SIGINT and SIGTERM; a second signal raises KeyboardInterrupt.

    Python delivers signals to the main thread only; in any other thread this does nothing.

    Args:
        on_stop: called at the first signal, inside the signal handler: it must not write anything.
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


def check_server(
    connection: Connection, filters: Sequence[str] = (), *, is_patient: bool = False
) -> LogPosition | None:
    """The end of the server's log; None if the server is busy or, with `is_patient`, unavailable.

    Raises:
        PenstockError: the server is unavailable, has no log, or refuses the request.
    """
    try:
        return connection.client().position(filters=filters)
    except PenstockError as error:
        if is_busy(error) or (is_patient and is_transient(error)):
            return None
        raise


def wait_for_server(
    connection: Connection, filters: Sequence[str], progress: Progress, stopping: threading.Event
) -> PenstockError | None:
    """Wait for an unavailable server, with progress; returns the last error if the job is stopped meanwhile.

    Raises:
        PenstockError: the error is permanent, or the retry time of the connection has passed.
    """
    began = time.monotonic()
    while True:
        try:
            connection.client().position(filters=filters)
        except PenstockError as error:
            if not is_transient(error) or time.monotonic() - began >= connection.retry_for_s:
                raise
            progress.show(waiting_text(connection, error))
            if stopping.wait(POLL_S):
                return error
        else:
            return None


def waiting_text(connection: Connection, error: PenstockError) -> str:
    """Progress line while a server is unavailable."""
    reason = str(error).removeprefix("no connection to ")
    if not reason.startswith(connection.address):
        reason = f"{connection.address}: {reason}"
    return f"waiting for {reason}"


def count_text(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun, such as `1 row` and `2 rows`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
