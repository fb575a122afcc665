"""Repeating timers, with intervals that may change."""

from penstock.app.housekeeping import Timers
from tests.support.clock import ManualClock, ManualScheduler


class Hour:
    """Timers, and the times at which they fired."""

    def __init__(self) -> None:
        self.clock = ManualClock(monotonic=0.0)
        self.scheduler = ManualScheduler(self.clock)
        self.timers = Timers(self.scheduler)
        self.moments: list[float] = []

    def note(self) -> None:
        self.moments.append(self.clock.monotonic())

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.scheduler.advance(1.0)


def test_an_action_repeats_until_the_timers_stop() -> None:
    hour = Hour()
    hour.timers.repeat("look", 2.0, hour.note)
    hour.pass_seconds(5)
    hour.timers.stop()
    hour.pass_seconds(5)
    assert hour.moments == [2.0, 4.0]


def test_a_new_interval_applies_at_once_and_the_same_one_changes_nothing() -> None:
    hour = Hour()
    hour.timers.repeat("look", 3.0, hour.note)
    hour.pass_seconds(2)
    hour.timers.repeat("look", 3.0, hour.note)
    hour.pass_seconds(2)
    hour.timers.repeat("look", 1.0, hour.note)
    hour.pass_seconds(2)
    assert hour.moments == [3.0, 5.0, 6.0]


def test_an_interval_of_zero_is_never() -> None:
    hour = Hour()
    hour.timers.repeat("look", 1.0, hour.note)
    hour.timers.repeat("look", 0.0, hour.note)
    hour.pass_seconds(3)
    assert (hour.moments, hour.scheduler.timers) == ([], 0)


def test_an_action_that_fails_is_repeated() -> None:
    hour = Hour()

    def fail_at_first() -> None:
        hour.note()
        if len(hour.moments) == 1:
            raise OSError("a disk is full")

    hour.timers.repeat("look", 1.0, fail_at_first)
    try:
        hour.pass_seconds(1)
    except OSError:
        hour.pass_seconds(1)
    assert hour.moments == [1.0, 2.0]
