"""Figures that a test needs, without a server."""

from datetime import UTC, datetime, timedelta

from penstock.dashboard.figures import Figures, TopicFigures, Totals
from penstock.dashboard.history import History

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


def figures(uptime_s: float = 0.0, published: int = 0, **others: object) -> Figures:
    """Figures of a server that has been up for so long and has taken so many messages."""
    return Figures(uptime_seconds=uptime_s, total=Totals(total_published=published), **others)  # type: ignore[arg-type]


def history(*published: tuple[float, float, int]) -> History:
    """A history of moments, uptimes and how many messages had been published."""
    made = History()
    for at, uptime_s, number in published:
        made.add(at, START + timedelta(seconds=at), figures(uptime_s, number))
    return made


def topic(**numbers: object) -> TopicFigures:
    """One topic."""
    return TopicFigures(**numbers)  # type: ignore[arg-type]
