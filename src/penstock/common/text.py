"""Numbers, sizes and times as text for people, the same in the command line and the dashboard.

Each function takes None for a value that is not known, and returns `-` for it.
"""

from datetime import datetime

ABSENT = "-"
"""Shown where there is no value."""

_SIZE_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def count_text(number: float | None) -> str:
    """A whole number: `12,345`."""
    return ABSENT if number is None else f"{number:,.0f}"


def rate_text(per_second: float | None) -> str:
    """A rate without its unit: `1,234`, and below ten with one decimal place."""
    if per_second is None:
        return ABSENT
    return f"{per_second:.1f}" if 0 < per_second < 9.95 else f"{per_second:,.0f}"


def size_text(size: float | None) -> str:
    """A number of bytes: `512 B`, `1.5 KiB`, `12.0 MiB`."""
    if size is None:
        return ABSENT
    for unit, name in _SIZE_UNITS:
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size:,.0f} B"


def milliseconds_text(time_ms: float | None) -> str:
    """A short time: `0.12 ms`, `12.3 ms`, `1,234 ms`."""
    if time_ms is None:
        return ABSENT
    if time_ms < 10:
        return f"{time_ms:.2f} ms"
    return f"{time_ms:.1f} ms" if time_ms < 100 else f"{time_ms:,.0f} ms"


def percent_text(share: float | None, places: int = 1) -> str:
    """A part of a whole: `12.5 %`."""
    return ABSENT if share is None else f"{share * 100:.{places}f} %"


def duration_text(seconds: float | None) -> str:
    """A long time in its two largest units: `42 s`, `3 min 05 s`, `2 h 07 min`, `12 d 03 h`."""
    if seconds is None:
        return ABSENT
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR:02} h"


def moment_text(when: datetime, precision: str = "microseconds") -> str:
    """A time in UTC: `2026-01-31T12:00:00.000000Z`.

    Args:
        precision: the smallest unit that is shown, as `isoformat` names it.
    """
    return when.isoformat(timespec=precision).replace("+00:00", "Z")


def counted(count: int, noun: str, ending: str = "s") -> str:
    """A number with its noun: `1 message`, `1,234 messages`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{ending}"


def offsets_text(first: int, last: int) -> str:
    """A range of log offsets: `offset 7`, `offsets 7 to 9 (3)`."""
    return f"offset {first}" if first == last else f"offsets {first} to {last} ({last - first + 1:,})"
