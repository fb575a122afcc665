"""Schemas: times as clients read and write them."""

import pytest

from penstock.doors.web.support.schemas import LAST_US, microseconds, time_text
from penstock.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "wall_us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.000002Z", 1_000_002),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:01", 1_000_000),
        ("1970-01-02", 86_400_000_000),
        ("1960-01-01T00:00:00Z", 0),  # before everything
    ],
)
def test_a_time_is_read_in_any_zone(text: str, wall_us: int) -> None:
    assert microseconds(text) == wall_us


@pytest.mark.parametrize("text", ["", "now", "2026", "2026-13-01", "12:00", "2026-01-31T25:00:00Z", "\0"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        microseconds(text)


@pytest.mark.parametrize("wall_us", [0, 1, 999_999, 1_000_000, 1_769_860_800_000_001])
def test_a_time_is_written_so_that_it_can_be_read_again(wall_us: int) -> None:
    text = time_text(wall_us)
    assert text.endswith("Z") and len(text) == len("2026-01-31T12:00:00.000001Z")
    assert microseconds(text) == wall_us


def test_a_time_beyond_all_calendars_is_the_last_one() -> None:
    assert time_text(10**30) == time_text(LAST_US)
