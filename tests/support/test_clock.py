"""Time and turns, moved by hand."""

import pytest

from tests.support.clock import ManualClock, ManualScheduler


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def scheduler(clock: ManualClock) -> ManualScheduler:
    return ManualScheduler(clock)


def test_both_clocks_advance_together_and_only_the_one_for_people_jumps(clock: ManualClock) -> None:
    wall, monotonic = clock.wall_us(), clock.monotonic()
    clock.advance(1.5)
    clock.jump(-10)
    assert clock.wall_us() == wall + 1_500_000 - 10_000_000
    assert clock.monotonic() == monotonic + 1.5


def test_what_a_turn_schedules_waits_for_the_next(scheduler: ManualScheduler) -> None:
    events: list[str] = []

    def first() -> None:
        events.append("first")
        scheduler.call_soon(lambda: events.append("second"))

    scheduler.call_soon(first)
    scheduler.turn()
    assert events == ["first"]
    scheduler.turn()
    assert events == ["first", "second"]


def test_timers_run_in_the_order_of_their_times(scheduler: ManualScheduler, clock: ManualClock) -> None:
    start = clock.monotonic()
    events: list[tuple[str, float]] = []
    scheduler.call_later(3, lambda: events.append(("late", clock.monotonic() - start)))
    scheduler.call_later(1, lambda: events.append(("early", clock.monotonic() - start)))
    scheduler.call_later(9, lambda: events.append(("never", clock.monotonic() - start)))
    scheduler.advance(5)
    assert events == [("early", 1.0), ("late", 3.0)]
    assert clock.monotonic() == start + 5
    assert scheduler.timers == 1


def test_what_was_called_off_does_not_run(scheduler: ManualScheduler) -> None:
    events: list[str] = []
    for handle in (
        scheduler.call_soon(lambda: events.append("soon")),
        scheduler.call_later(1, lambda: events.append("later")),
    ):
        handle.cancel()
    assert (scheduler.pending, scheduler.timers) == (0, 0)
    scheduler.advance(2)
    assert events == []


def test_something_that_schedules_itself_for_ever_is_noticed(scheduler: ManualScheduler) -> None:
    def again() -> None:
        scheduler.call_soon(again)

    again()
    with pytest.raises(RuntimeError, match="still busy"):
        scheduler.settle()
