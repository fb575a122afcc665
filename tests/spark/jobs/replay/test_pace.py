"""The pace of a replay: each message as long after the first as it was, divided by the speed."""

import threading

import pytest

from penstock.spark.jobs.replay.job import Pace


class Moments(threading.Event):
    """Somebody who may tell to stop, and a clock that goes on by what they are waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        self.now += timeout
        return self.is_set()


def seconds(count: float) -> int:
    return round(count * 1_000_000)


@pytest.mark.parametrize("speed", [0.5, 1.0, 10.0])
def test_pauses_are_as_they_were_divided_by_the_speed(speed: float) -> None:
    moments = Moments()
    pace = Pace(speed, moments, lambda: moments.now)
    assert all(pace.wait(seconds(when)) for when in (50, 50, 52, 60))
    assert moments.waits == pytest.approx([2 / speed, 8 / speed])


def test_time_that_publishing_takes_is_no_pause() -> None:
    moments = Moments()
    pace = Pace(1.0, moments, lambda: moments.now)
    pace.wait(seconds(50))
    moments.now += 3
    assert pace.wait(seconds(52))
    assert moments.waits == []
    assert pace.late_s == pytest.approx(1)
    assert pace.wait(seconds(55))
    assert moments.waits == pytest.approx([2])
    assert pace.late_s == 0


def test_a_clock_that_was_set_back_keeps_nobody_waiting() -> None:
    moments = Moments()
    pace = Pace(1.0, moments, lambda: moments.now)
    assert all(pace.wait(seconds(when)) for when in (50, 51, 20, 52))
    assert moments.waits == pytest.approx([1, 1])


def test_nobody_waits_where_speed_is_no_matter() -> None:
    moments = Moments()
    pace = Pace(None, moments, lambda: moments.now)
    assert all(pace.wait(seconds(when)) for when in (0, 1_000))
    assert not moments.waits
    moments.set()
    assert not pace.wait(seconds(1_001))


def test_whoever_is_told_to_stop_waits_no_longer() -> None:
    moments = Moments()
    pace = Pace(1.0, moments, lambda: moments.now)
    assert pace.wait(seconds(50))
    moments.set()
    assert not pace.wait(seconds(50))
    assert not pace.wait(seconds(60))
