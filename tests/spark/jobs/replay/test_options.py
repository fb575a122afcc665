"""What a replay may be told, and what makes it another one."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from penstock.common.cursor import Cursor, Position
from penstock.spark.errors import InvalidOption
from penstock.spark.jobs.replay import ReplayOptions
from penstock.spark.options import parse_position

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
CURSOR = Cursor((Position("0102030405060708", 1, 7),)).encode()


def options(**told: Any) -> ReplayOptions:
    return ReplayOptions(**{"server": {}, "lake": "/lake", **told})


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"prefix": ""}, "--force allows it"),
        ({"prefix": "a/#/"}, "--prefix a/#/: a topic holds no"),
        ({"prefix": "a\0"}, "null character"),
        ({"speed": 0.0}, "--speed is a factor above 0"),
        ({"speed": float("nan")}, "--speed"),
        ({"speed": float("inf")}, "--speed"),
        ({"lake": None, "lake_only": True, "state": Path("x")}, "--lake-only needs --lake"),
        ({"lake": None}, "needs --state"),
    ],
)
def test_what_does_not_go_together_is_refused(told: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        options(**told).check()


def test_a_replay_onto_live_topics_takes_force() -> None:
    options(prefix="", force=True).check()
    options(prefix="copies-").check()


def test_the_same_options_remember_in_the_same_file_whatever_the_server_is_called() -> None:
    one = options(filters=("b", "a"), start=NOON, server={"address": "http://a"})
    same_time = NOON.astimezone(timezone(timedelta(hours=2)))
    other = options(filters=("a", "b"), start=same_time, server={"address": "http://b"}, again=True)
    assert one.state_file == other.state_file
    assert one.state_file.parent == Path("/lake/_replays")
    assert options(state=Path("mine")).state_file == Path("mine")


@pytest.mark.parametrize(
    "told",
    [{"filters": ("a",)}, {"start": NOON}, {"until": NOON}, {"prefix": "b/"}, {"speed": 2.0}, {"lake": "/b"}],
)
def test_another_range_prefix_or_speed_is_another_replay(told: dict[str, Any]) -> None:
    assert options(**told).state_file.name != options().state_file.name


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        (CURSOR, CURSOR),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T14:00:00+02:00", NOON),
    ],
)
def test_places_are_names_cursors_and_times(text: str, place: object) -> None:
    assert parse_position(text) == place


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-01-31T12:00:00", "2026-13-01T00:00:00Z", CURSOR[:-3]]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_position(text)
