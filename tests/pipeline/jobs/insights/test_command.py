"""`penstock pipeline insights`: what it says when it is over, and when it cannot begin."""

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
        (["--filter", "a/#/b"], "# stands only in the last level"),
        (["--from", "yesterday"], "startingOffsets"),
        (["--lake", "s3://bucket/lake"], "a lake is a directory"),
        (["--address", "ftp://host"], "no address"),
        (["--address", ""], "address"),
        (["--lateness", "-1"], "lateness"),
        (["--password-file", "x"], "--password-file needs --user"),
    ],
)
def test_flags_that_make_no_sense_are_refused_before_spark_starts(
    flags: list[str], text: str, tmp_path: Path
) -> None:
    lake = [] if "--lake" in flags else ["--lake", str(tmp_path / "lake")]
    result = CliRunner().invoke(app, ["insights", *lake, *flags], env={"TERMINAL_WIDTH": "500"})
    assert result.exit_code in {1, 2}
    assert text in " ".join(result.output.split())
    assert not (tmp_path / "lake").exists()


def test_it_tells_what_it_has_seen(spark: "SparkSession", lake_server: LogServer, tmp_path: Path) -> None:
    lake_server.publish_numbers(["a", "b"], 5)
    flags = ["--address", lake_server.address, "--lake", str(tmp_path / "lake"), "--filter", "a"]
    result = CliRunner().invoke(app, ["insights", *flags, "-o", "json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    facts = report["facts"]
    assert (report["job"], facts["messages"], facts["rows"], facts["late_messages"]) == ("insights", 3, 0, 0)
    assert [table["table"] for table in report["tables"]["tables"]] == [
        "topics",
        "prefixes",
        "hot",
        "clients",
        "drops",
        "balance",
    ]
