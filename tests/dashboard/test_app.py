"""App header: `live` is shown only for fresh metrics."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.client import ConnectionLost
from penstock.dashboard.app import server_state
from penstock.dashboard.poller import History, Source, View, explain_failure
from penstock.dashboard.style import Level
from tests.dashboard.samples import metrics

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FAILURE = explain_failure(ConnectionLost("it broke"), Source(), "/metrics", NOON + timedelta(seconds=5))


def view(*, has_metrics: bool = True, has_failure: bool = False) -> View:
    history = History()
    if has_metrics:
        history.add(0.0, NOON, metrics())
    return View(Source(), history, [], FAILURE if has_failure else None)


@pytest.mark.parametrize(
    ("seen", "after_s", "said"),
    [
        (view(), 1, (Level.GOOD, "live")),
        (view(), 4, (Level.ELEVATED, "no data for 4 s")),
        (view(has_failure=True), 8, (Level.CRITICAL, "no data for 8 s")),
        (view(has_metrics=False), 1, (Level.ELEVATED, "connecting")),
        (view(has_metrics=False, has_failure=True), 8, (Level.CRITICAL, "no data for 3 s")),
    ],
    ids=["fresh", "under way", "old", "none yet", "none at all"],
)
def test_the_header_shows_the_age_of_the_metrics(seen: View, after_s: int, said: tuple[Level, str]) -> None:
    assert server_state(seen, NOON + timedelta(seconds=after_s)) == said
