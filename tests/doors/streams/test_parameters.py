"""Lengths of time as text."""

import pytest

from penstock.doors.streams.parameters import seconds_of
from penstock.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("500ms", 0.5),
        ("1m30s", 90),
        ("1h2m3s4ms", 3723.004),
        ("1.5m", 90),
        (".5s", 0.5),
        ("250us", 0.00025),
        ("7ns", 7e-9),
        ("0", 0),
        ("0s", 0),
        ("+2s", 2),
        ("-2s", -2),
    ],
)
def test_a_number_with_a_unit_is_a_length_of_time(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "5",
        "5 s",
        "5x",
        "1m30",
        "--5s",
        "+-5s",
        "5s!",
        "1e3s",
        "\u0665s",
        "5S",
        "9" * 70 + "s",
        "-",
        "5.s5",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(InvalidRequest):
        seconds_of(text)
