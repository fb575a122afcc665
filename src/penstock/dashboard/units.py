"""Numbers as people read them: thousands apart, one unit for one kind of thing, always as many places."""

NOTHING = "–"  # noqa: RUF001 - a dash, where there is no number yet
KIB, MIB, GIB = 1024, 1024**2, 1024**3
MINUTE, HOUR, DAY = 60, 3_600, 86_400


def count(number: float) -> str:
    """A whole number: `12,345`."""
    return f"{number:,.0f}"


def per_second(rate: float | None) -> str:
    """A rate without its unit: `1,234`, and with one decimal place below ten."""
    if rate is None:
        return NOTHING
    return f"{rate:,.1f}" if 0 < rate < 9.95 else f"{rate:,.0f}"


def size(number: float) -> str:
    """Bytes: `512 B`, `1.5 KiB`, `12.0 MiB`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if number >= unit:
            return f"{number / unit:,.1f} {name}"
    return f"{number:,.0f} B"


def milliseconds(number: float) -> str:
    """A short time: `0.12 ms`, `12.3 ms`, `1,234 ms`."""
    if number < 10:
        return f"{number:.2f} ms"
    return f"{number:,.1f} ms" if number < 100 else f"{number:,.0f} ms"


def percent(share: float | None, places: int = 1) -> str:
    """A part of a whole: `12.5 %`."""
    return NOTHING if share is None else f"{share * 100:.{places}f} %"


def duration(seconds: float) -> str:
    """A long time, in its two largest units: `42 s`, `3 min 05 s`, `2 h 07 min`, `12 d 03 h`."""
    whole = int(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE:02} min"
    return f"{whole // DAY} d {whole % DAY // HOUR:02} h"
