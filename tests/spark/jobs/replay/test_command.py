"""`penstock pipeline replay`: what it says when it is over, and when it cannot begin."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from penstock.cli.pipeline import app
from penstock.spark.jobs.replay.options import ReplayOptions
from penstock.spark.jobs.replay.plan import State
from penstock.spark.source.positions import position_of
from tests.spark.servers import LogServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("flags", "text", "code"),
    [
        (["--prefix", ""], "--force allows it", 1),
        (["--prefix", "a/#/"], "a topic holds no", 1),
        (["--speed", "0"], "--speed is a factor above 0", 1),
        (["--filter", "a/#/b"], "--filter a/#/b", 1),
        (["--lake-only"], "--lake-only needs --lake", 1),
        (["--from", "yesterday"], "yesterday", 2),
        (["--until", "2026-01-31T12:00:00"], "needs its time zone", 2),
        (["--lake", "s3://bucket/lake"], "a lake is a directory", 1),
        (["--address", "ftp://host"], "not a valid address", 2),
    ],
)
def test_flags_that_make_no_sense_are_refused_before_spark_starts(
    flags: list[str], text: str, code: int, tmp_path: Path
) -> None:
    state = [] if "--lake" in flags else ["--state", str(tmp_path / "state")]
    result = CliRunner().invoke(app, ["replay", *state, *flags], env={"TERMINAL_WIDTH": "500"})
    assert result.exit_code == code
    assert text in " ".join(result.output.split())
    assert "starting Spark" not in result.output
    assert not (tmp_path / "state").exists()


def test_a_replay_tells_what_it_has_done(
    spark: "SparkSession", log_server: LogServer, name: str, tmp_path: Path
) -> None:
    log_server.publish_numbers([f"{name}/in"], 5)
    flags = ["--address", log_server.address, "--filter", f"{name}/in", "--prefix", f"{name}/out/"]
    result = CliRunner().invoke(app, ["replay", *flags, "--state", str(tmp_path / "state"), "-o", "json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert (report["job"], report["facts"]["published"], report["facts"]["is_finished"]) == (
        "replay",
        5,
        True,
    )
    with log_server.client() as client:
        assert len(client.messages(f"{name}/out/{name}/in", last=10).messages) == 5


def test_a_replay_that_is_finished_needs_no_spark(
    log_server: LogServer, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("penstock.spark.session.session", refuse)
    file, filters = tmp_path / "state", (f"{name}/in",)
    options = ReplayOptions(server={"address": log_server.address}, filters=filters, state=file)
    with log_server.client() as client:
        position = client.position()
    what = {**options.identity, "target": f"log {position.log_id}"}
    State.begin(file, what, position_of(position.cursor), [])
    flags = ["--address", log_server.address, "--filter", f"{name}/in", "--state", str(file)]
    result = CliRunner().invoke(app, ["replay", *flags])
    assert result.exit_code == 0, result.output
    assert "is_finished: true" in result.stdout
    assert result.stderr == "this replay is finished: --again publishes everything again\n"


def test_a_lake_that_is_not_there_is_told_before_spark_starts(tmp_path: Path) -> None:
    lake = tmp_path / "nowhere"
    result = CliRunner().invoke(app, ["replay", "--lake", str(lake)])
    assert (result.exit_code, result.output) == (1, f"error: {lake}: there is no lake here\n")


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    flags = ["--address", "http://127.0.0.1:9", "--state", str(tmp_path / "state")]
    result = CliRunner().invoke(app, ["replay", *flags])
    assert result.exit_code == 1
    assert result.stderr == "error: no connection to http://127.0.0.1:9: Connection refused\n"
