"""The last seconds of a histogram."""

import pytest

from penstock.core.latency import Histogram, bucket_of
from penstock.telemetry.lately import STEP_S, WINDOW_S, Lately
from penstock.testing import ManualClock


class Watched:
    """A histogram that somebody looks at twice a second."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.histogram = Histogram()
        self.lately = Lately(self.histogram, self.clock)

    def add(self, seconds: float, times: int = 1) -> None:
        self.histogram.add(bucket_of(seconds), seconds, times)

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.clock.advance(STEP_S)
            self.lately.look()


def test_before_anybody_looked_everything_is_of_late() -> None:
    watched = Watched()
    watched.add(0.25, 4)
    count, mean, (half,) = watched.lately.times(0.5)
    assert (count, mean) == (4, pytest.approx(0.25))
    assert 0.2 <= half <= 0.25


def test_nothing_is_no_time() -> None:
    assert Watched().lately.times(0.5, 0.99) == (0, 0.0, [0.0, 0.0])


def test_what_is_older_than_the_window_is_left_out() -> None:
    watched = Watched()
    watched.lately.look()
    watched.add(8.0)
    watched.wait(WINDOW_S)
    watched.add(0.001, 3)
    assert watched.lately.times()[0] == 4, "it is not older yet"
    watched.wait(STEP_S)
    count, mean, _ = watched.lately.times()
    assert (count, mean) == (3, pytest.approx(0.001))


def test_a_quiet_time_is_told_as_such() -> None:
    watched = Watched()
    watched.lately.look()
    watched.add(1.0)
    watched.wait(WINDOW_S + STEP_S)
    assert watched.lately.times(0.99) == (0, 0.0, [0.0])


def test_no_more_is_remembered_than_the_window_needs() -> None:
    watched = Watched()
    watched.wait(5 * WINDOW_S)
    assert len(watched.lately._looks) == WINDOW_S / STEP_S + 1
    for _ in range(100):
        watched.lately.look()
    assert len(watched.lately._looks) == WINDOW_S / STEP_S + 1
