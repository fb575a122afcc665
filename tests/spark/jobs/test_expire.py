import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import build
from penstock.lake import DataFile, InvalidLake, Table, lake_messages
from penstock.spark.jobs.expire import ExpireOptions, age_of, days_to_remove, expire
from penstock.spark.jobs.run import Report, run
from tests.lake.lakes import add_batch, offsets_of, rows_of
from tests.lake.messages import DAY_US, messages

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Ten messages of each of the last four days; the offsets of today are 30 to 39."""
    now = int(datetime.now(UTC).timestamp() * 1e6)
    for number in range(4):
        add_batch(tmp_path / "lake", messages(number * 10, 10, at=now - (3 - number) * DAY_US))
    return lake_messages(tmp_path / "lake")


def run_expire(table: Table, **other: Any) -> Report:
    options = ExpireOptions(lake=str(table.path.parent), **other)
    return run(partial(expire, options), None)  # type: ignore[arg-type]


def days(*sizes: int, first: int = 10) -> list[DataFile]:
    """Files of consecutive days of November 2026, the first of these days the one that is given."""
    return [
        DataFile(path=str(day), rows=1, bytes=size, partition={"date": f"2026-11-{day}"})
        for day, size in enumerate(sizes, first)
    ]


def going(files: list[DataFile], **other: Any) -> set[str]:
    return {day[-2:] for day in days_to_remove(files, ExpireOptions(lake="", **other), NOW)}


def test_a_day_goes_when_it_has_been_over_for_so_long() -> None:
    files = days(1, 1, 1, 1, 1, 1, 1)  # up to today, the 16th
    assert going(files, older_than="2d") == {"10", "11", "12", "13"}
    assert going(files, older_than="12h") == {"10", "11", "12", "13", "14", "15"}
    assert going(files, older_than="13h") == {"10", "11", "12", "13", "14"}
    assert going(files, older_than="8w") == set()


def test_the_oldest_days_go_until_the_rest_is_small_enough() -> None:
    files = days(10, 20, 30, 40)
    assert going(files, keep_bytes=100) == set()
    assert going(files, keep_bytes=99) == {"10"}
    assert going(files, keep_bytes=70) == {"10", "11"}
    assert going(files, keep_bytes=0) == {"10", "11", "12"}  # the newest is being written


def test_both_rules_hold() -> None:
    assert going(days(10, 10, 10, first=14), keep_bytes=20, older_than="1d") == {"14"}
    assert going(days(10, 10, 10, first=14), keep_bytes=10, older_than="1d") == {"14", "15"}


def test_a_table_without_days_is_refused() -> None:
    with pytest.raises(InvalidLake, match="not partitioned by date"):
        going([DataFile(path="a", rows=1, bytes=1, partition={"grain": "1h"})], keep_bytes=0)


def test_rows_without_a_date_are_not_old() -> None:
    nameless = DataFile(path="a", rows=1, bytes=1, partition={"date": "__HIVE_DEFAULT_PARTITION__"})
    assert going([nameless], older_than="1d") == set()


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("30d", timedelta(30)),
        ("12h", timedelta(hours=12)),
        ("8W", timedelta(56)),
        (" 90 m ", timedelta(minutes=90)),
    ],
)
def test_ages_are_written_as_people_do(text: str, age: timedelta) -> None:
    assert age_of(text) == age


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5d", "30 days", "99999999999999d"])
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid age"):
        age_of(text)


def test_old_days_are_removed_and_remembered(table: Table) -> None:
    before = table.manifest()
    report = run_expire(table, older_than="1d")
    assert offsets_of(table) == list(range(20, 40))
    assert len(rows_of(table, before.files.values())) == 40  # for those who read on
    expired = table.manifest().expired
    assert {each.partition["bucket"] for each in expired} == {
        file.partition["bucket"] for file in before.files.values()
    }
    assert (min(each.first_offset for each in expired), max(each.last_offset for each in expired)) == (0, 19)
    assert report.facts["removed_rows"] == sum(each.rows for each in expired) == 20
    assert [row["rows"] for row in report.tables["removed"]] == [10, 10]


def test_removed_files_are_deleted_when_the_grace_is_over(table: Table) -> None:
    report = run_expire(table, keep_bytes=0, grace_s=0)
    assert report.facts["deleted_files"] == report.facts["removed_files"] == 6
    assert offsets_of(table) == list(range(30, 40))
    assert len(list(table.path.rglob("*.parquet"))) == 2
    assert len(list(table.path.glob("date=*/bucket=*"))) == 2


def test_when_nothing_is_old_nothing_happens(table: Table) -> None:
    version = table.manifest().version
    report = run_expire(table, older_than="30d")
    assert (report.facts["removed_files"], report.tables) == (0, {})
    assert table.manifest().version == version


def test_what_comes_meanwhile_is_judged_too(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    late = int((datetime.now(UTC) - timedelta(9)).timestamp() * 1e6)
    publish = Table._publish

    def be_second(self: Table, *args: Any) -> bool:
        monkeypatch.undo()
        add_batch(table.path.parent, messages(40, 10, at=late))
        return publish(self, *args)

    monkeypatch.setattr(Table, "_publish", be_second)
    assert run_expire(table, older_than="1d").facts["removed_rows"] == 30
    assert offsets_of(table) == list(range(20, 40))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "nothing to remove: give --older-than"),
        ({"older_than": "soon"}, "is not a valid age"),
        ({"keep_bytes": -1}, "must not be negative"),
        ({"keep_bytes": 1, "grace_s": -1.0}, "must not be negative"),
    ],
)
def test_options_that_make_no_sense_are_refused(table: Table, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        expire(
            ExpireOptions(lake=str(table.path.parent), **wrong),
            spark=None,
            progress=None,  # type: ignore[arg-type]
            stopping=threading.Event(),
        )


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ([], 2, "give --older-than, --keep-bytes or both"),
        (["--older-than", "soon"], 1, "error: 'soon' is not a valid age"),
        (["--keep-bytes", "1", "--table", "other"], 1, "there is no table here"),
    ],
)
def test_the_command_says_what_is_wrong_before_spark_starts(
    table: Table, flags: list[str], code: int, words: str
) -> None:
    result = CliRunner().invoke(
        build(["pipeline"]), ["pipeline", "expire", "--lake", str(table.path.parent), *flags]
    )
    assert result.exit_code == code
    assert words in result.output
