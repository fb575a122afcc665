"""`penstock pipeline replay`: what it says when it is over, and when it cannot begin."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from penstock.cli.pipeline import app
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


def test_a_server_that_is_not_there_is_one_line(spark: "SparkSession", tmp_path: Path) -> None:
    flags = ["--address", "http://127.0.0.1:9", "--state", str(tmp_path / "state")]
    result = CliRunner().invoke(app, ["replay", *flags])
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("error: no connection to http://127.0.0.1:9")
