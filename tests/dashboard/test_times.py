"""Moments are shown in UTC, wherever they were written, or by how long ago they were."""

from datetime import UTC, datetime, timedelta, timezone

from penstock.dashboard.times import ago, to_millisecond, to_second


def test_a_moment_of_another_zone_is_shown_in_utc() -> None:
    moment = datetime(2026, 11, 17, 1, 2, 3, 45_678, tzinfo=timezone(timedelta(hours=2)))
    assert to_second(moment) == "2026-11-16 23:02:03"
    assert to_millisecond(moment) == "2026-11-16 23:02:03.045"


def test_how_long_ago_something_was_is_never_less_than_nothing() -> None:
    moment = datetime(2026, 11, 16, 12, tzinfo=UTC)
    assert ago(moment, moment + timedelta(seconds=185)) == "3 min 05 s"
    assert ago(moment, moment - timedelta(seconds=5)) == "0 s"
