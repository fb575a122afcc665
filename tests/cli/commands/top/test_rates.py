"""Rates from two looks at a server's figures."""

from typing import Any

import pytest

from penstock.cli.commands.top.view import Sample, figure, part, per_second, rates_by_key, was_restarted


def sample(at: float, **figures: Any) -> Sample:
    return Sample(at, {"uptime_seconds": at, **figures})


BEFORE = sample(10.0, total={"sent": 100}, doors={"mqtt": {"in": 10}, "web": {"in": 5}})
AFTER = sample(12.0, total={"sent": 150}, doors={"mqtt": {"in": 30}, "web": {"in": 5}, "new": {"in": 8}})


def test_a_number_is_found_at_its_path() -> None:
    assert figure(BEFORE.figures, "doors", "mqtt", "in") == 10


@pytest.mark.parametrize("path", [("no",), ("total", "no"), ("total", "sent", "deep"), ("total",)])
def test_what_is_not_there_is_not_zero(path: tuple[str, ...]) -> None:
    assert figure(BEFORE.figures, *path) is None


def test_a_flag_is_no_number() -> None:
    assert figure({"failing": True}, "failing") is None


def test_a_part_that_is_not_there_is_empty() -> None:
    assert part(BEFORE.figures, "total", "sent") == {}


def test_a_rate_is_the_difference_over_the_time_between() -> None:
    assert per_second(BEFORE, AFTER, "total", "sent") == 25.0


def test_the_first_look_has_no_rates() -> None:
    assert per_second(None, AFTER, "total", "sent") is None
    assert rates_by_key(None, AFTER, "doors", counter="in") == {}


def test_two_looks_at_one_moment_have_no_rate() -> None:
    assert per_second(AFTER, AFTER, "total", "sent") is None


def test_a_counter_that_fell_has_no_rate() -> None:
    fallen = sample(12.0, total={"sent": 1})
    assert per_second(BEFORE, fallen, "total", "sent") is None


def test_a_server_that_was_started_anew_has_no_rates_even_where_counters_rose() -> None:
    anew = Sample(12.0, {"uptime_seconds": 0.5, "total": {"sent": 1_000}, "doors": {"mqtt": {"in": 99}}})
    assert was_restarted(BEFORE, anew)
    assert per_second(BEFORE, anew, "total", "sent") is None
    assert rates_by_key(BEFORE, anew, "doors", counter="in") == {}


def test_rates_of_parts_have_their_names_and_a_new_one_rose_from_zero() -> None:
    assert rates_by_key(BEFORE, AFTER, "doors", counter="in") == {"mqtt": 10.0, "web": 0.0, "new": 4.0}


def test_rates_of_plain_counters_have_their_names() -> None:
    assert rates_by_key(BEFORE, AFTER, "total") == {"sent": 25.0}
