"""Durations with units, as settings, flags and HTTP parameters take them."""

import pytest

from penstock.common.durations import MAX_CHARACTERS, parse_duration, write_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("500ms", 0.5),
        ("1ms", 0.001),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("1h30m", 5_400),
        ("1h 30min", 5_400),
        (" 5 m ", 300),
        (".5s", 0.5),
        ("250us", 0.000_25),
    ],
)
def test_a_number_with_a_unit_is_a_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "s", "30 s 5", "-5s", "5y", "1e3s", "٣s", "5s" * MAX_CHARACTERS])
def test_other_texts_are_not_durations(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize("text", ["7d", "12h", "5m", "90s", "500ms", "0s", "1500ms"])
def test_what_is_written_is_read_back(text: str) -> None:
    seconds = parse_duration(text)
    assert seconds is not None
    assert parse_duration(write_duration(seconds)) == seconds
    assert text in (write_duration(seconds), "1500ms")
