"""The command with scenarios that need a disk: what is written where, and what is left."""

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.bench import bench
from penstock.cli.bench.machine import describe_machine
from penstock.cli.bench.meter import Meter
from penstock.cli.bench.report import Result
from penstock.cli.bench.targets import accepts, free_port
from penstock.extras import how_to_get


def invoke(*arguments: str) -> tuple[int, str, str]:
    app = typer.Typer()
    app.command()(bench)
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def test_trials_run_without_any_broker_and_leave_nothing_but_their_results(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    out = tmp_path / "figures" / "raw.json"
    brief = ("--repeat", "2", "--scale", "0.001", "--peers", "none")
    status, output, said = invoke("--scenario", "log_read", *brief, "--out", str(out), "-o", "json")
    assert status == 0, said
    result = msgspec.json.decode(output, type=Result)
    assert [run.size for run in result.runs["log_read"]["penstock"]] == [
        "1,000 sealed messages and 200 others"
    ] * 2
    assert result.machine.file_system
    assert list(out.parent.iterdir()) == [out]


def test_scenarios_about_the_log_need_penstock() -> None:
    status, _, said = invoke("--scenario", "log_read,restart", "--no-penstock")
    assert status == 2
    assert "--no-penstock" in said


def test_scenarios_with_a_data_directory_say_what_has_to_be_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)  # as if it could not be found
    status, _, said = invoke("--scenario", "durable", "--out", str(tmp_path / "raw.json"))
    assert status == 1
    assert f"scenarios with a data directory: needs the extra `log`: {how_to_get('log')}" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scale", ["0", "1.5"])
def test_scale_is_a_share(scale: str) -> None:
    status, _, said = invoke("--scenario", "log_read", "--scale", scale)
    assert status == 2
    assert "--scale" in said


def test_file_system_is_that_of_the_folder() -> None:
    assert describe_machine(Path("/proc/self")).file_system == "proc"


LISTENER = """
import socket, subprocess, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.3: pass\\ntime.sleep(60)"])
"""


TWO_LISTENERS = """
import os, socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while time.process_time() < 0.3: pass
ready, done = os.pipe()
if os.fork():
    os.read(ready, 1)
    print("ready", flush=True)
else:
    while time.process_time() < 0.5: pass
    os.write(done, b"x")
time.sleep(60)
"""


def test_meter_counts_a_listener_once_that_another_one_has_started() -> None:
    port = free_port()
    command = [sys.executable, "-c", TWO_LISTENERS, str(port)]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as listener:
        try:
            assert listener.stdout is not None and listener.stdout.readline() == b"ready\n"
            assert 0.75 <= Meter(port).read().cpu_s < 1.2
        finally:
            subprocess.run(["kill", "--", f"-{listener.pid}"], check=True)


def test_meter_counts_what_the_listener_has_started() -> None:
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", LISTENER, str(port)], start_new_session=True) as listener:
        try:
            while not accepts("127.0.0.1", port):
                time.sleep(0.01)
            meter, deadline = Meter(port), time.monotonic() + 20
            while meter.read().cpu_s < 0.3 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert meter.read().cpu_s >= 0.3  # of which the listener itself has taken a tenth
        finally:
            subprocess.run(["kill", "--", f"-{listener.pid}"], check=True)
