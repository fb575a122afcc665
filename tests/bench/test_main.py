"""Command line of the bench: options, exit codes, files that are written."""

import shutil
import sys
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from bench.__main__ import main
from bench.load.build import find_program
from bench.load.generator import LoadGenerator
from bench.report.summary import Result
from penstock.extras import how_to_get

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator needs gcc")


needs_mosquitto = pytest.mark.skipif(find_program("mosquitto") is None, reason="mosquitto is not installed")


def invoke(*arguments: str) -> tuple[int, str, str]:
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def test_two_brokers_of_one_name_are_refused_before_anything_starts() -> None:
    status, _, said = invoke("--peers", "none", "--target", "penstock=mqtt://127.0.0.1:1")
    assert status == 2
    assert "--no-penstock" in said


@needs_gcc
@needs_mosquitto
def test_bench_of_mosquitto_writes_figures_versions_and_raw_runs(
    generator: LoadGenerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bench").mkdir()
    monkeypatch.chdir(tmp_path)
    brief = ("--repeat", "1", "--duration", "0.2", "--warm", "0.05", "--no-penstock")
    chosen = ("--scenario", "pingpong", "--peers", "mosquitto-debian")
    status, output, said = invoke(*chosen, *brief, "-o", "json", "--markdown", "table.md")
    assert status == 0, said
    result = msgspec.json.decode(output, type=Result)
    [run] = result.runs["pingpong"]["mosquitto-debian"]
    assert (run.lost, run.order_errors, run.window) == (0, 0, 1)
    assert run.delivered_per_s is not None and run.delivered_per_s > 0
    assert run.broker_cpu is not None and 0 <= run.broker_cpu < 1.5
    assert result.versions["mosquitto-debian"].startswith("mosquitto version")
    [raw] = (tmp_path / "bench" / "results").glob("*.json")
    assert msgspec.json.decode(raw.read_bytes(), type=Result) == result
    assert "| pingpong | deliveries/s |" in (tmp_path / "table.md").read_text()


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
