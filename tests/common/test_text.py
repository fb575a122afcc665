"""Numbers, sizes and times as text for people."""

from datetime import UTC, datetime

import pytest

from penstock.common.text import (
    count_text,
    counted,
    duration_text,
    milliseconds_text,
    moment_text,
    offsets_text,
    percent_text,
    rate_text,
    size_text,
)

TEXTS = [count_text, rate_text, size_text, milliseconds_text, percent_text, duration_text]


@pytest.mark.parametrize("text_of", TEXTS)
def test_what_is_not_known_is_a_dash(text_of: object) -> None:
    assert callable(text_of)
    assert text_of(None) == "-"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (count_text(1_234_567), "1,234,567"),
        (rate_text(0.0), "0"),
        (rate_text(0.25), "0.2"),
        (rate_text(9.96), "10"),
        (rate_text(12_345.6), "12,346"),
        (size_text(0), "0 B"),
        (size_text(999), "999 B"),
        (size_text(1_023), "1,023 B"),
        (size_text(1 << 10), "1.0 KiB"),
        (size_text(1_536), "1.5 KiB"),
        (size_text(1 << 20), "1.0 MiB"),
        (size_text(50 << 20), "50.0 MiB"),
        (size_text(3 << 30), "3.0 GiB"),
        (size_text(3 << 39), "1.5 TiB"),
        (milliseconds_text(0.123), "0.12 ms"),
        (milliseconds_text(12.34), "12.3 ms"),
        (milliseconds_text(1_234.5), "1,234 ms"),
        (percent_text(0.1234), "12.3 %"),
        (percent_text(1, 0), "100 %"),
        (duration_text(0.4), "0 s"),
        (duration_text(59.9), "59 s"),
        (duration_text(61), "1 min 01 s"),
        (duration_text(3_600), "1 h 00 min"),
        (duration_text(7_620), "2 h 07 min"),
        (duration_text(90_000), "1 d 01 h"),
        (duration_text(12 * 86_400 + 3 * 3_600), "12 d 03 h"),
    ],
)
def test_numbers_are_short_and_have_a_unit(text: str, wanted: str) -> None:
    assert text == wanted


def test_moments_are_in_utc_and_as_fine_as_is_asked_for() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 5, 1_234, UTC)
    assert moment_text(moment) == "2026-01-31T12:00:05.001234Z"
    assert moment_text(moment, "milliseconds") == "2026-01-31T12:00:05.001Z"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (counted(1, "message"), "1 message"),
        (counted(1_234, "batch", "es"), "1,234 batches"),
        (offsets_text(7, 7), "offset 7"),
        (offsets_text(7, 1_006), "offsets 7 to 1006 (1,000)"),
    ],
)
def test_counts_and_ranges_agree_with_their_nouns(text: str, wanted: str) -> None:
    assert text == wanted
