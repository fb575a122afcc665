"""Numbers and moments as people read them."""

from datetime import UTC, datetime

import pytest

from penstock.cli.units import (
    count_text,
    duration_text,
    milliseconds_text,
    moment_text,
    rate_text,
    size_text,
)


@pytest.mark.parametrize("text_of", [count_text, rate_text, size_text, milliseconds_text, duration_text])
def test_what_is_not_known_is_a_dash(text_of: object) -> None:
    assert callable(text_of)
    assert text_of(None) == "-"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (count_text(1_234_567), "1,234,567"),
        (rate_text(0.0), "0"),
        (rate_text(0.25), "0.2"),
        (rate_text(12_345.6), "12,346"),
        (size_text(999), "999 bytes"),
        (size_text(1 << 10), "1.0 KiB"),
        (size_text(1 << 20), "1.0 MiB"),
        (size_text(3 << 39), "1.5 TiB"),
        (milliseconds_text(0.123), "0.12 ms"),
        (milliseconds_text(1_234.5), "1,234 ms"),
        (duration_text(0.4), "0 s"),
        (duration_text(61), "1 min 1 s"),
        (duration_text(90_000), "1 d 1 h"),
        (duration_text(3_600), "1 h 0 min"),
    ],
)
def test_numbers_are_short_and_have_a_unit(text: str, wanted: str) -> None:
    assert text == wanted


def test_moments_are_in_utc_and_as_fine_as_is_asked_for() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 5, 1_234, UTC)
    assert moment_text(moment) == "2026-01-31T12:00:05.001234Z"
    assert moment_text(moment, "milliseconds") == "2026-01-31T12:00:05.001Z"
