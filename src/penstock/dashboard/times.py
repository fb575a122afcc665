"""Moments as people read them: in UTC, or how long ago they were."""

from datetime import UTC, datetime

from penstock.dashboard.units import duration


def to_second(time: datetime) -> str:
    """Date and time: `2026-11-16 21:28:16`."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def to_millisecond(time: datetime) -> str:
    """The same, finer: `2026-11-16 21:28:16.042`."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def ago(time: datetime, now: datetime) -> str:
    """How long ago that was: `3 min 05 s`; clocks may differ, but nothing is shown before it is there."""
    return duration(max((now - time).total_seconds(), 0.0))
