"""The newest window of insights: found, ranked, and bounded."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.dashboard.lakes import insights
from penstock.dashboard.lakes.insights import SHOWN_ROWS, grains_in, newest, newest_files, tables_in
from penstock.dashboard.lakes.showing import cell_text
from penstock.pipeline.jobs.insights.grains import GRAINS
from penstock.pipeline.jobs.insights.tables import TABLES
from penstock.pipeline.lake import DataFile
from tests.dashboard.lakes import add_insights

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def test_tables_columns_and_grains_are_those_that_the_job_writes() -> None:
    assert set(insights.TABLES) == set(TABLES) == set(insights.COLUMNS)
    assert all(set(insights.COLUMNS[name]) <= set(TABLES[name]) for name in TABLES)
    assert list(insights.GRAINS) == [grain.name for grain in GRAINS]


def test_the_newest_window_is_shown_and_the_busiest_first(tmp_path: Path) -> None:
    add_insights(tmp_path, "topics", "10s", NOON, [{"topic": "old", "messages": 99}])
    later = NOON + timedelta(seconds=10)
    add_insights(
        tmp_path, "topics", "10s", later, [{"topic": "a", "messages": 3}, {"topic": "b", "messages": 7}]
    )
    found = newest(tmp_path, "topics", "10s")
    assert found is not None and found.window_start == later
    assert [(row["topic"], row["messages"]) for row in found.rows] == [("b", 7), ("a", 3)]


def test_a_window_of_the_next_day_is_newer(tmp_path: Path) -> None:
    add_insights(tmp_path, "drops", "1m", NOON + timedelta(days=1), [{"reason": "expired", "messages": 1}])
    add_insights(tmp_path, "drops", "1m", NOON, [{"reason": "outbox-full", "messages": 2}])
    found = newest(tmp_path, "drops", "1m")
    assert found is not None and found.rows[0]["reason"] == "expired"


def test_only_what_is_there_is_offered(tmp_path: Path) -> None:
    assert (tables_in(tmp_path), grains_in(tmp_path)) == ([], [])
    add_insights(tmp_path, "hot", "1m", NOON, [{"topic": "a", "messages": 3, "rank": 1}])
    assert (tables_in(tmp_path), grains_in(tmp_path)) == (["hot"], ["1m"])
    assert newest(tmp_path, "hot", "10s") is None


def test_many_rows_are_cut_and_counted(tmp_path: Path) -> None:
    rows = [{"topic": f"t{number}", "messages": number} for number in range(300)]
    add_insights(tmp_path, "topics", "10s", NOON, rows)
    found = newest(tmp_path, "topics", "10s")
    assert found is not None and (len(found.rows), found.rows_in_all) == (SHOWN_ROWS, 300)
    assert found.rows[0]["messages"] == 299


def test_no_more_files_are_read_than_needed() -> None:
    files = [
        DataFile(path=str(number), rows=1, bytes=1, partition={"grain": "1m", "date": f"2026-11-{day}"})
        for number, day in enumerate([17] * 50 + [16] * 50)
    ]
    assert [file.path for file in newest_files(files, "1m")] == [str(number) for number in range(49, 41, -1)]
    assert newest_files(files, "1h") == []


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("topic", "a/b", "a/b"),
        ("messages", 12_345, "12,345"),
        ("messages_per_s", 1.5, "1.50"),
        ("bytes", 2048, "2.0 KiB"),
        ("share", 0.25, "25.0 %"),
        ("latency_p99_ms", None, "–"),  # noqa: RUF001 - as units.py writes it
    ],
)
def test_values_are_written_with_their_units(name: str, value: object, text: str) -> None:
    assert cell_text(name, value) == text
