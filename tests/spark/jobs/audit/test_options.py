"""Ranges by cursor and by time, as offsets."""

from pathlib import Path

import pytest
from msgspec import structs

from penstock.common.cursor import Cursor, Position
from penstock.errors import InvalidRequest
from penstock.lake import Manifest
from penstock.spark.jobs.audit.job import find_range, first_offset_since, parse_range_end
from penstock.spark.jobs.audit.runs import OffsetRange
from tests.spark.jobs.audit.lakes import DAY_US, LOG_ID, SOME_DAY, cursor, damage, write_file

MIDNIGHT = SOME_DAY * DAY_US


def manifest(folder: Path) -> Manifest:
    """Two files, whose rows are of as many microseconds after midnight as their offsets say."""
    files = [
        write_file(folder, "x.parquet", [("a", 1, n, n) for n in range(11, 21)]),
        write_file(folder, "y.parquet", [("a", 1, n, n) for n in range(21, 31)]),
    ]
    return Manifest(
        files={file.path: file for file in files},
        start=cursor(10),
        cursor=cursor(40),
        log_id=LOG_ID,
        buckets=2,
    )


def test_a_time_is_read_with_its_zone_and_without_one_it_is_utc() -> None:
    assert parse_range_end("1970-01-02T01:00:00+01:00") == DAY_US
    assert parse_range_end("1970-01-02") == DAY_US
    assert parse_range_end("1970-01-01T00:00:00.000001Z") == 1


def test_a_cursor_stays_what_it_is() -> None:
    assert parse_range_end(cursor(7)) == cursor(7)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "AQ"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_range_end(text)


def test_without_a_range_it_is_all_that_the_lake_answers_for(tmp_path: Path) -> None:
    assert find_range(tmp_path, manifest(tmp_path), None, None) == OffsetRange(10, 40)


def test_rows_behind_the_cursor_of_a_log_that_lost_its_end_belong_to_it(tmp_path: Path) -> None:
    cut_back = structs.replace(manifest(tmp_path), cursor=cursor(15, epoch=2))
    assert find_range(tmp_path, cut_back, None, None) == OffsetRange(10, 30)


def test_a_file_without_times_may_have_any(tmp_path: Path) -> None:
    file = write_file(tmp_path, "x.parquet", [("a", 1, n, n) for n in range(1, 11)])
    timeless = structs.replace(file, first_time=None, last_time=None)
    assert first_offset_since(tmp_path, [timeless], MIDNIGHT + 5) == 5


def test_cursors_are_offsets_and_end_where_the_lake_does(tmp_path: Path) -> None:
    lake = manifest(tmp_path)
    assert find_range(tmp_path, lake, cursor(15), cursor(20)) == OffsetRange(15, 20)
    assert find_range(tmp_path, lake, cursor(3), cursor(90)) == OffsetRange(10, 40)


def test_a_time_means_the_first_message_of_then_or_later(tmp_path: Path) -> None:
    lake = manifest(tmp_path)
    assert find_range(tmp_path, lake, MIDNIGHT + 15, MIDNIGHT + 25) == OffsetRange(14, 24)
    assert find_range(tmp_path, lake, 0, MIDNIGHT + 1_000) == OffsetRange(10, 40)


def test_a_clock_that_was_set_back_does_not_hide_a_later_file(tmp_path: Path) -> None:
    early = write_file(tmp_path, "x.parquet", [("a", 1, 1, 50), ("a", 1, 2, 60)])
    late = write_file(tmp_path, "y.parquet", [("a", 1, 3, 55), ("a", 1, 4, 70)])
    assert first_offset_since(tmp_path, [late, early], MIDNIGHT + 51) == 55


def test_a_damaged_file_makes_the_range_larger(tmp_path: Path) -> None:
    file = write_file(tmp_path, "x.parquet", [("a", 1, n, n) for n in range(1, 11)])
    damage(tmp_path / file.path)
    (tmp_path / file.path).write_bytes(b"PAR1")
    assert first_offset_since(tmp_path, [file], MIDNIGHT + 5) == 1


@pytest.mark.parametrize(
    ("start", "end"), [(cursor(20), cursor(20)), (cursor(30), cursor(20)), (cursor(40), None)]
)
def test_an_empty_range_proves_nothing_and_is_refused(tmp_path: Path, start: str, end: str | None) -> None:
    with pytest.raises(InvalidRequest, match="this range is empty"):
        find_range(tmp_path, manifest(tmp_path), start, end)


def test_a_cursor_of_another_log_is_refused(tmp_path: Path) -> None:
    foreign = Cursor((Position("ff" * 8, 1, 20),)).encode()
    with pytest.raises(InvalidRequest, match=f"belongs to the log {LOG_ID}"):
        find_range(tmp_path, manifest(tmp_path), foreign, None)
