"""Lengths of time as text: `30s`, `500ms`, `1m30s`."""

import re

from penstock.errors import InvalidRequest

UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
MAX_CHARACTERS = 64
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s|us|ns)", re.ASCII)


def seconds_of(text: str) -> float:
    """How many seconds a text means; it may have a sign.

    Raises:
        InvalidRequest: it is no length of time.
    """
    length = text.lstrip("+-") if text[1:2] not in ("+", "-") else ""
    sign = -1.0 if text.startswith("-") else 1.0
    if length == "0":
        return 0.0
    parts = _PART.findall(length)
    if not parts or len(text) > MAX_CHARACTERS or "".join(map("".join, parts)) != length:
        raise InvalidRequest("a length of time is a number with a unit, as 30s, 500ms or 1m30s")
    return sign * sum(float(number) * UNITS_S[unit] for number, unit in parts)
