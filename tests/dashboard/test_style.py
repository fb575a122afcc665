"""Thresholds, and colours that can be distinguished and read."""

import pytest

from penstock.dashboard.style import (
    LATENCY_MS,
    LEVELS,
    OUTCOMES,
    PERCENTILES,
    SATURATION,
    SERIES,
    Level,
    Outcome,
)

LIGHT, DARK = "#ffffff", "#10161d"


@pytest.mark.parametrize(
    ("name", "number", "level"),
    [
        ("avg", 49.9, Level.GOOD),
        ("avg", 50, Level.ELEVATED),
        ("avg", 200, Level.CRITICAL),
        ("p95", 99, Level.GOOD),
        ("p95", 100, Level.ELEVATED),
        ("p95", 500, Level.CRITICAL),
        ("p99", 199, Level.GOOD),
        ("p99", 200, Level.ELEVATED),
        ("p99", 1000, Level.CRITICAL),
    ],
)
def test_times_are_elevated_and_critical_from_their_thresholds_on(
    name: str, number: float, level: Level
) -> None:
    assert LATENCY_MS[name].level(number) is level


@pytest.mark.parametrize(
    ("share", "level"),
    [(0.2499, Level.GOOD), (0.25, Level.ELEVATED), (0.7499, Level.ELEVATED), (0.75, Level.CRITICAL)],
)
def test_saturation_is_elevated_from_a_quarter_and_critical_from_three_quarters(
    share: float, level: Level
) -> None:
    assert SATURATION.level(share) is level


def test_outcomes_share_no_colour() -> None:
    assert len(set(OUTCOMES.values())) == len(OUTCOMES)
    assert set(OUTCOMES) == set(Outcome)


@pytest.mark.parametrize("paper", [LIGHT, DARK])
@pytest.mark.parametrize("colour", sorted({*OUTCOMES.values(), *LEVELS.values(), *SERIES}))
def test_every_colour_can_be_seen_on_light_and_on_dark(colour: str, paper: str) -> None:
    lighter, darker = sorted((luminance(colour), luminance(paper)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 2.4


def test_later_percentiles_are_darker() -> None:
    lights = [luminance(PERCENTILES[name]) for name in ("avg", "p95", "p99")]
    assert lights == sorted(lights, reverse=True)


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
