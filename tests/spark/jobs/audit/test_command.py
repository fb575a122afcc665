"""`penstock pipeline audit`: what it prints, and how it ends."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from penstock.cli.pipeline import app
from tests.spark.jobs.audit.lakes import RangeEnd, cursor, lake_with
from tests.spark.servers import LogServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE: list[RangeEnd] = [("a", 1, number, number) for number in range(1, 10)]


def run_audit(*flags: str) -> tuple[int, str]:
    """The exit code, and what was written to both outputs."""
    result = CliRunner().invoke(app, ["audit", *flags], env={"TERMINAL_WIDTH": "500"})
    return result.exit_code, result.stdout + result.stderr


def test_it_ends_with_0_when_all_is_well_and_with_1_when_something_is_found(
    spark: "SparkSession", tmp_path: Path
) -> None:
    lake_with(tmp_path / "whole", [WHOLE], cursor_offset=20)
    code, said = run_audit("--lake", str(tmp_path / "whole"))
    assert code == 0, said
    assert "missing: 0" in said

    lake_with(tmp_path / "holed", [WHOLE[:3] + WHOLE[5:]], cursor_offset=20)
    code, said = run_audit("--lake", str(tmp_path / "holed"), "--from", cursor(1), "-o", "json")
    assert code == 1, said
    report = json.loads(said)
    assert not report["is_clean"]
    assert report["tables"]["missing"] == [
        {
            "topic": "a",
            "epoch": 1,
            "first": 4,
            "last": 5,
            "messages": 2,
            "reason": "unexplained",
            "after_offset": 3,
            "before_offset": 6,
        }
    ]
    elsewhere = ["--lake", str(tmp_path / "holed"), "--captured", "b/#", "--until", cursor(15)]
    assert run_audit(*elsewhere)[0] == 0


def test_it_ends_with_2_when_there_is_no_answer_before_spark_starts(tmp_path: Path) -> None:
    code, said = run_audit("--lake", str(tmp_path / "nowhere"))
    assert (code, said) == (2, f"error: {tmp_path / 'nowhere'}: there is no lake here\n")

    lake_with(tmp_path / "whole", [WHOLE], cursor_offset=20)
    code, said = run_audit("--lake", str(tmp_path / "whole"), "--address", "http://127.0.0.1:9")
    assert (code, said) == (2, "error: no connection to http://127.0.0.1:9: Connection refused\n")

    (tmp_path / "delta" / "messages" / "_delta_log").mkdir(parents=True)
    code, said = run_audit("--lake", str(tmp_path / "delta"))
    assert (code, "Spark" in said) == (2, False)
    assert "is a Delta table" in said


def test_the_log_of_another_server_is_refused_before_spark_starts(
    log_server: LogServer, tmp_path: Path
) -> None:
    lake_with(tmp_path / "whole", [WHOLE], cursor_offset=20)
    code, said = run_audit("--lake", str(tmp_path / "whole"), "--address", log_server.address)
    assert code == 2
    assert said.startswith("error: this lake belongs to the log ")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--from", "noon"], "'noon' is neither a cursor nor a time"),
        (["--captured", "a/#/b"], "'a/#/b' is not a valid topic filter"),
        (["--user", "me"], "need --address"),
        (["--address", "nonsense://"], ""),
    ],
)
def test_flags_that_make_no_sense_are_refused_at_once(
    tmp_path: Path, flags: list[str], complaint: str
) -> None:
    code, said = run_audit("--lake", str(tmp_path), *flags)
    assert code == 2
    assert complaint in said
