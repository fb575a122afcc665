"""Rates per second from two samples of a server's statistics (`HttpClient.metrics`).

Counters only rise while a server runs. After a restart there is no rate until the next sample.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

UPTIME = "uptime_seconds"


class Sample(NamedTuple):
    """Statistics of a server at one moment."""

    at: float
    """Seconds of a monotonic clock."""
    figures: Mapping[str, Any]


def part(figures: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at a path; empty if there is none."""
    found: Any = figures
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def figure(figures: Mapping[str, Any], *path: str) -> float | None:
    """The number at a path; None if there is none."""
    found = part(figures, *path[:-1]).get(path[-1])
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def was_restarted(before: Sample, after: Sample) -> bool:
    """Return whether the server was restarted between two samples."""
    return (figure(after.figures, UPTIME) or 0.0) < (figure(before.figures, UPTIME) or 0.0)


def per_second(before: Sample | None, after: Sample, *path: str) -> float | None:
    """Rate of the counter at a path; None if these samples give none."""
    if before is None or was_restarted(before, after):
        return None
    old, new = figure(before.figures, *path), figure(after.figures, *path)
    return None if old is None or new is None else _rate(old, new, after.at - before.at)


def rates_by_key(
    before: Sample | None, after: Sample, *path: str, counter: str | None = None
) -> dict[str, float]:
    """Rate of each counter in an object; a new counter has risen from zero.

    Args:
        counter: name of the counter, if the entries are objects themselves, such as topics.
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
