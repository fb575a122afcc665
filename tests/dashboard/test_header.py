"""The top of the page: it says live only of figures that are."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.client import ConnectionLost
from penstock.dashboard.colours import Level
from penstock.dashboard.header import state_of
from penstock.dashboard.history import History
from penstock.dashboard.poll import View
from penstock.dashboard.source import Source
from penstock.dashboard.trouble import explain
from tests.dashboard.sampling import figures

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
TROUBLE = explain(ConnectionLost("it broke"), Source(), "/metrics", NOON + timedelta(seconds=5))


def view(*, has_figures: bool = True, has_trouble: bool = False) -> View:
    history = History()
    if has_figures:
        history.add(0.0, NOON, figures())
    return View(Source(), history, [], TROUBLE if has_trouble else None)


@pytest.mark.parametrize(
    ("seen", "after_s", "said"),
    [
        (view(), 1, (Level.GOOD, "live")),
        (view(), 4, (Level.ELEVATED, "no figures for 4 s")),
        (view(has_trouble=True), 8, (Level.CRITICAL, "no figures for 8 s")),
        (view(has_figures=False), 1, (Level.ELEVATED, "asking")),
        (view(has_figures=False, has_trouble=True), 8, (Level.CRITICAL, "no figures for 3 s")),
    ],
    ids=["fresh", "under way", "old", "none yet", "none at all"],
)
def test_the_header_says_how_old_the_figures_are(seen: View, after_s: int, said: tuple[Level, str]) -> None:
    assert state_of(seen, NOON + timedelta(seconds=after_s)) == said
