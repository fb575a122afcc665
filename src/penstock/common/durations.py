"""Durations as text: a number with a unit, such as `30s`, `500ms`, `7d` or `1h30m`.

Settings, flags and HTTP parameters share this one way to write them. A number without a unit is not a
duration here: its unit is that of the setting or parameter.
"""

import re

UNITS_S = {
    "w": 604_800.0,
    "d": 86_400.0,
    "h": 3_600.0,
    "min": 60.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
}
"""Seconds of each unit."""
MAX_CHARACTERS = 64
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(w|d|h|min|ms|m|s|us|ns)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern}\s*)+", re.ASCII)


def parse_duration(text: str) -> float | None:
    """Seconds of a duration with units; None if the text is not one."""
    text = text.strip()
    if len(text) > MAX_CHARACTERS or _WHOLE.fullmatch(text) is None:
        return None
    # Each part is divided or multiplied by a whole number, so that 500ms is 0.5 exactly.
    return sum(_seconds(float(number), unit) for number, unit in _PART.findall(text))


def write_duration(seconds: float) -> str:
    """The shortest way to write a duration: `7d`, `90s`, `500ms`; `parse_duration` reads it back."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % UNITS_S[unit] == 0:
            return f"{seconds / UNITS_S[unit]:.0f}{unit}"
    if seconds % 1 == 0:
        return f"{seconds:.0f}s"
    milliseconds = round(seconds * 1e3, 6)
    if milliseconds and milliseconds % 1 == 0:
        return f"{milliseconds:.0f}ms"
    return f"{seconds:.12f}".rstrip("0") + "s"


def _seconds(number: float, unit: str) -> float:
    factor = UNITS_S[unit]
    return number * factor if factor >= 1 else number / round(1 / factor)
