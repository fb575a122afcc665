"""`penstock pipeline insights`: what it says when it is over, and when it cannot begin."""

import json
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from penstock.cli.pipeline import app
from penstock.lake import lake_insights
from penstock.spark.jobs.insights import InsightsOptions, insights
from penstock.spark.jobs.run import NoProgress, run
from penstock.spark.tables import read_table
from tests.spark.servers import LogServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("flags", "text", "code"),
    [
        (["--filter", "a/#/b"], "# stands only in the last level", 1),
        (["--from", "yesterday"], "startingOffsets", 1),
        (["--lake", "s3://bucket/lake"], "a lake is a directory", 1),
        (["--address", "ftp://host"], "not a valid address", 2),
        (["--address", ""], "address", 2),
        (["--lateness", "-1"], "lateness", 2),
        (["--address", "http://127.0.0.1:9"], "error: no connection to http://127.0.0.1:9", 1),
        (["--user", "ann"], "--user needs --password-file", 2),
        (["--password-file", "x"], "--password-file needs --user", 2),
    ],
)
def test_flags_that_make_no_sense_are_refused_before_spark_starts(
    flags: list[str], text: str, code: int, tmp_path: Path
) -> None:
    lake = [] if "--lake" in flags else ["--lake", str(tmp_path / "lake")]
    result = CliRunner().invoke(app, ["insights", *lake, *flags], env={"TERMINAL_WIDTH": "500"})
    assert result.exit_code == code
    assert text in " ".join(result.output.split())
    assert not (tmp_path / "lake").exists()


def test_who_never_reached_the_server_does_not_report_a_success(tmp_path: Path) -> None:
    class Stopping(NoProgress):
        def show(self, text: str) -> None:
            stopping.set()

    stopping = threading.Event()
    server = {"address": "http://127.0.0.1:9"}
    options = InsightsOptions(lake=str(tmp_path / "lake"), server=server, follow=True)
    no_spark: Any = None
    report = run(partial(insights, options), no_spark, Stopping(), stopping)
    assert report.was_stopped
    assert report.facts["server_away"] == "no connection to http://127.0.0.1:9: Connection refused"


def test_it_tells_what_it_has_seen(spark: "SparkSession", lake_server: LogServer, tmp_path: Path) -> None:
    lake_server.publish_numbers(["a", "b"], 5)
    flags = ["--address", lake_server.address, "--lake", str(tmp_path / "lake"), "--filter", "a"]
    result = CliRunner().invoke(app, ["insights", *flags, "-o", "json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    facts = report["facts"]
    assert "server_away" not in facts
    assert read_table(spark, None, lake_insights(tmp_path / "lake", "drops")).count() == 0
    assert (report["job"], facts["messages"], facts["rows"], facts["late_messages"]) == ("insights", 3, 0, 0)
    assert [table["table"] for table in report["tables"]["tables"]] == [
        "topics",
        "prefixes",
        "hot",
        "clients",
        "drops",
        "balance",
    ]
