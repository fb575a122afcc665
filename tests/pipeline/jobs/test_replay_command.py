"""`penstock pipeline replay`: what it says when it is over, and when it cannot begin."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from penstock.cli.pipeline import app
from penstock.pipeline.jobs.replay.options import ReplayOptions
from penstock.pipeline.jobs.replay.state import State
from penstock.pipeline.source.offsets import position_of
from tests.pipeline.servers import LogServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--prefix", ""], "--force allows it"),
        (["--prefix", "a/#/"], "a topic holds no"),
        (["--speed", "0"], "--speed is a factor above 0"),
        (["--filter", "a/#/b"], "--filter a/#/b"),
        (["--lake-only"], "--lake-only needs --lake"),
        (["--from", "yesterday"], "yesterday"),
        (["--until", "2026-01-31T12:00:00"], "needs its time zone"),
        (["--lake", "s3://bucket/lake"], "a lake is a directory"),
        (["--address", "ftp://host"], "no address"),
    ],
)
def test_flags_that_make_no_sense_are_refused_before_spark_starts(
    flags: list[str], text: str, tmp_path: Path
) -> None:
    state = [] if "--lake" in flags else ["--state", str(tmp_path / "state")]
    result = CliRunner().invoke(app, ["replay", *state, *flags], env={"TERMINAL_WIDTH": "500"})
    assert result.exit_code in {1, 2}
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

    monkeypatch.setattr("penstock.pipeline.session.session", refuse)
    file, filters = tmp_path / "state", (f"{name}/in",)
    options = ReplayOptions(server={"address": log_server.address}, filters=filters, state=file)
    with log_server.client() as client:
        position = client.position()
    what = {**options.what, "target": f"log {position.log_id}"}
    State.begin(file, what, position_of(position.cursor), [])
    flags = ["--address", log_server.address, "--filter", f"{name}/in", "--state", str(file)]
    result = CliRunner().invoke(app, ["replay", *flags])
    assert result.exit_code == 0, result.output
    assert "is_finished: true" in result.stdout
    assert result.stderr == "this replay is finished: --again publishes everything once more\n"


def test_a_lake_that_is_not_there_is_told_before_spark_starts(tmp_path: Path) -> None:
    lake = tmp_path / "nowhere"
    result = CliRunner().invoke(app, ["replay", "--lake", str(lake)])
    assert (result.exit_code, result.output) == (1, f"error: {lake}: there is no lake here\n")


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    flags = ["--address", "http://127.0.0.1:9", "--state", str(tmp_path / "state")]
    result = CliRunner().invoke(app, ["replay", *flags])
    assert result.exit_code == 1
    assert result.stderr == "error: no connection to http://127.0.0.1:9: Connection refused\n"
