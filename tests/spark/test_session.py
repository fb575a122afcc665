"""Session: settings, no output, and a complete end."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError

from penstock.errors import InvalidConfig
from penstock.spark import session as sessions
from penstock.spark.jobs.run import stopped_by_signals
from penstock.spark.jvm import Jvm
from penstock.spark.session import check_master, running_session, session, start_session
from tests.spark.jvms import QUICK_DRIVER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_times_are_utc_and_nothing_listens_for_browsers(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1"


def test_workers_run_the_python_of_the_driver(spark: "SparkSession") -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ()
        yield pa.RecordBatch.from_pylist([{"path": sys.executable}])

    (row,) = spark.range(1, numPartitions=1).mapInArrow(look, "path string").collect()
    assert Path(row.path).samefile(sys.executable)


def test_a_session_that_runs_is_used_and_left_running(spark: "SparkSession") -> None:
    with session("another") as same:
        assert same.sparkContext is spark.sparkContext
    assert start_session("a third").range(3).count() == 3
    assert running_session() is not None


@pytest.mark.parametrize("master", ["local[*]", "local[2]", "yarn", "k8s://https://host:6443"])
def test_only_a_standalone_master_is_asked_whether_it_is_there(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize(
    ("master", "words"),
    [
        ("spark://127.0.0.1:1", "no Spark master responds at spark://127.0.0.1:1"),
        ("spark://127.0.0.1:1,127.0.0.1:2", "no Spark master responds"),
        ("spark://host", "is not a valid address of a Spark master"),
        ("spark://host:70000", "is not a valid address of a Spark master"),
        ("sc://host:15002", "Spark Connect"),
    ],
)
def test_a_master_that_will_not_do_is_told_at_once(master: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        check_master(master)


def test_one_master_that_answers_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{there.getsockname()[1]}")


def test_under_spark_submit_a_log_of_our_own_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(sessions, "running_session", lambda: None)
    with pytest.raises(InvalidConfig, match="submit, which decides"), session("x", log=tmp_path / "log"):
        pass


def test_a_job_does_not_outlive_the_spark_submit_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()
    with stopped_by_signals(stopping):
        jvm = Jvm(SimpleNamespace(proc=None))
        assert jvm.is_alive
        monkeypatch.setattr(os, "getppid", lambda: 1)  # nobody's child any more
        assert stopping.wait(30)
    assert not jvm.is_alive


@pytest.mark.parametrize("is_heard", [True, False])
def test_what_spark_prints_is_seen_in_a_session_of_ones_own_and_not_in_a_job(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], is_heard: bool
) -> None:
    def launch(conf: object, options: dict[str, Any]) -> None:
        program = "import sys; print('rows'); print('Error: no memory', file=sys.stderr)"
        subprocess.run([sys.executable, "-c", program], check=True, **options)
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):  # set by the start, and taken back after the test
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(sessions, "running_session", lambda: None)
    monkeypatch.setattr("penstock.spark.jvm.launch_gateway", launch)
    with pytest.raises(InvalidConfig, match="Spark does not start: Error: no memory"):
        start_session() if is_heard else session("job").__enter__()
    assert capfd.readouterr() == ("rows\n" if is_heard else "", "")


ALONE = """
import json, os, subprocess, sys
from pathlib import Path
from types import SimpleNamespace
from penstock.errors import PenstockError
from penstock.spark.session import session

def children():
    listed = subprocess.run(["ps", "-o", "ppid=,comm=", "-A"], capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if line.split()[:2] == [str(os.getpid()), "java"]]

told, confs = {}, json.loads(sys.argv[2])
try:
    with session("nowhere", "nonsense", confs):
        pass
except PenstockError as error:
    told["nonsense"] = str(error)
log = Path(sys.argv[1])
with session("alone", "local[1]", confs, log=log) as spark:
    told["rows"] = spark.range(5).count()
    told["partitions"] = spark.conf.get("spark.sql.shuffle.partitions")
    told["during"] = len(children())
told["after"] = len(children())
print(json.dumps(told))
"""


@pytest.mark.timeout(180)
def test_a_session_of_its_own_is_silent_and_takes_its_jvm_with_it(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(log), json.dumps(QUICK_DRIVER)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=170,
    )
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert "Master must either be yarn or start with" in told["nonsense"]
    assert (told["rows"], told["partitions"]) == (5, "1")
    assert (told["during"], told["after"]) == (1, 0)
    assert "WARN" in log.read_text()
    assert list(tmp_path.iterdir()) == [log]  # Spark leaves nothing where it was started
