"""What a server does per second, from two looks at its figures (`HttpClient.metrics`).

Counters only rise while a server runs. Where one has fallen the server was started anew in between, and there
is no rate until the next look.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

UPTIME = "uptime_seconds"


class Sample(NamedTuple):
    """The figures of a server at one moment."""

    at: float
    """Seconds of a clock that never goes back."""
    figures: Mapping[str, Any]


def part(figures: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The part of the figures at a path; empty if the server has none there."""
    found: Any = figures
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def figure(figures: Mapping[str, Any], *path: str) -> float | None:
    """The number at a path; None if the server does not tell it."""
    found = part(figures, *path[:-1]).get(path[-1])
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def was_restarted(before: Sample, after: Sample) -> bool:
    """Whether these are figures of two runs of a server, which have nothing to do with each other."""
    return (figure(after.figures, UPTIME) or 0.0) < (figure(before.figures, UPTIME) or 0.0)


def per_second(before: Sample | None, after: Sample, *path: str) -> float | None:
    """How fast the counter at a path rises; None if that cannot be told from these two."""
    if before is None or was_restarted(before, after):
        return None
    old, new = figure(before.figures, *path), figure(after.figures, *path)
    return None if old is None or new is None else _rate(old, new, after.at - before.at)


def rates_by_key(
    before: Sample | None, after: Sample, *path: str, counter: str | None = None
) -> dict[str, float]:
    """How fast each counter in a part rises; what is new since has risen from zero.

    Args:
        counter: where the part has parts itself, such as topics, which of their counters.
    """
    if before is None or was_restarted(before, after):
        return {}
    old = part(before.figures, *path)
    rates: dict[str, float] = {}
    for key in (new := part(after.figures, *path)):
        where = (key,) if counter is None else (key, counter)
        count = figure(new, *where)
        if count is not None:
            rate = _rate(figure(old, *where) or 0.0, count, after.at - before.at)
            rates |= {} if rate is None else {key: rate}
    return rates


def _rate(old: float, new: float, seconds: float) -> float | None:
    return (new - old) / seconds if new >= old and seconds > 0 else None
