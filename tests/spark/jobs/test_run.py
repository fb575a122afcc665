"""Runner of jobs: progress, stop signals, reports, and checks of the server before a job begins."""

import os
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import PySparkRuntimeError

from penstock.client import ConnectionRefused, HttpRefused
from penstock.spark.connection import Connection
from penstock.spark.errors import SparkFailed
from penstock.spark.jobs import Progress, Report
from penstock.spark.jobs.run import check_server, run, stopped_by_signals, wait_for_server
from tests.spark.servers import LogServer
from tests.support.servers import StartServer

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


AWAY = "http://127.0.0.1:9"


class Stopping:
    """Progress that stops the job at the first word."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.event = threading.Event()

    def show(self, text: str) -> None:
        self.lines.append(text)
        self.event.set()

    def note(self, text: str) -> None:
        raise AssertionError(text)


def test_a_server_that_is_away_is_told_at_once_unless_it_is_waited_for() -> None:
    with pytest.raises(ConnectionRefused):
        check_server(Connection(address=AWAY))
    assert check_server(Connection(address=AWAY), is_patient=True) is None


def test_a_server_without_a_log_is_not_waited_for(start_server: StartServer) -> None:
    running = start_server({"http": {"port": 0}})
    connection = Connection(address=f"http://127.0.0.1:{running.port_of('http')}")
    with pytest.raises(HttpRefused, match="keeps no log"):
        check_server(connection, is_patient=True)
    with pytest.raises(HttpRefused, match="keeps no log"):
        wait_for_server(connection, (), Stopping(), threading.Event())


def test_who_waits_says_what_for_and_stops_when_told_to() -> None:
    progress = Stopping()
    away = wait_for_server(Connection(address=AWAY), (), progress, progress.event)
    assert isinstance(away, ConnectionRefused)
    assert progress.lines == ["waiting for http://127.0.0.1:9: Connection refused"]


def test_nobody_waits_for_longer_than_the_connection_does() -> None:
    with pytest.raises(ConnectionRefused):
        wait_for_server(Connection(address=AWAY, retry_for_s=0.0), (), Stopping(), threading.Event())


def test_a_server_that_is_there_is_not_waited_for(log_server: LogServer) -> None:
    connection = Connection(address=log_server.address)
    found = check_server(connection)
    assert found is not None
    assert found.cursor
    progress = Stopping()
    assert wait_for_server(connection, (), progress, progress.event) is None
    assert progress.lines == []
