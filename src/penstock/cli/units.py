"""Numbers and moments as people read them."""

from datetime import datetime

ABSENT = "-"


def count_text(number: float | None) -> str:
    """How many of something."""
    return ABSENT if number is None else f"{number:,.0f}"


def rate_text(per_second: float | None) -> str:
    """How many a second; slow ones with a decimal."""
    if per_second is None:
        return ABSENT
    return f"{per_second:,.0f}" if per_second >= 10 or not per_second else f"{per_second:.1f}"


def size_text(size: float | None) -> str:
    """How many bytes."""
    if size is None:
        return ABSENT
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):,.1f} {unit}"
    return f"{size:.0f} bytes"


def milliseconds_text(time_ms: float | None) -> str:
    """How long something took."""
    if time_ms is None:
        return ABSENT
    return f"{time_ms:,.0f} ms" if time_ms >= 10 else f"{time_ms:.2f} ms"


def duration_text(seconds: float | None) -> str:
    """How long something lasts, in its two largest units."""
    if seconds is None:
        return ABSENT
    rest = int(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, length)
        if number or parts:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2]) or "0 s"


def moment_text(when: datetime, precision: str = "microseconds") -> str:
    """When something was, in UTC: `2026-01-31T12:00:00.000000Z`.

    Args:
        precision: the smallest unit that is shown, as `isoformat` names it.
    """
    return when.isoformat(timespec=precision).replace("+00:00", "Z")
