"""Numbers as people read them."""

import pytest

from penstock.dashboard import units


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (units.count(1234567), "1,234,567"),
        (units.per_second(None), "–"),  # noqa: RUF001
        (units.per_second(0), "0"),
        (units.per_second(0.24), "0.2"),
        (units.per_second(9.96), "10"),
        (units.per_second(12345.6), "12,346"),
        (units.size(0), "0 B"),
        (units.size(1023), "1,023 B"),
        (units.size(1536), "1.5 KiB"),
        (units.size(50 * 1024**2), "50.0 MiB"),
        (units.size(3 * 1024**3), "3.0 GiB"),
        (units.milliseconds(0.1234), "0.12 ms"),
        (units.milliseconds(12.34), "12.3 ms"),
        (units.milliseconds(1234.5), "1,234 ms"),
        (units.percent(None), "–"),  # noqa: RUF001
        (units.percent(0.1234), "12.3 %"),
        (units.percent(1, 0), "100 %"),
        (units.duration(59.9), "59 s"),
        (units.duration(65), "1 min 05 s"),
        (units.duration(7_620), "2 h 07 min"),
        (units.duration(12 * 86_400 + 3 * 3_600), "12 d 03 h"),
    ],
)
def test_numbers_have_separators_and_units(text: str, wanted: str) -> None:
    assert text == wanted
