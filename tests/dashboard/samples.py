"""Sample metrics, without a server."""

from datetime import UTC, datetime, timedelta

from penstock.dashboard.poller import History
from penstock.dashboard.responses import Metrics, TopicMetrics, Totals

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


def metrics(uptime_s: float = 0.0, published: int = 0, **others: object) -> Metrics:
    """Metrics of a server with this uptime and this many published messages."""
    return Metrics(uptime_seconds=uptime_s, total=Totals(total_published=published), **others)  # type: ignore[arg-type]


def history(*published: tuple[float, float, int]) -> History:
    """A history of moments, uptimes and how many messages had been published."""
    made = History()
    for at, uptime_s, number in published:
        made.add(at, START + timedelta(seconds=at), metrics(uptime_s, number))
    return made


def topic(**numbers: object) -> TopicMetrics:
    """One topic."""
    return TopicMetrics(**numbers)  # type: ignore[arg-type]
