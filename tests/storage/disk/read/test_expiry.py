"""Expiry of stored messages by the clock of the reading process."""

import pytest

from penstock.runs import NEVER, Run
from penstock.storage.disk.read.loader import ExpiryClock
from tests.support.clock import ManualClock
from tests.support.samples import make_run

HOUR_S = 3_600.0


def stored(clock: ManualClock, offset: int, ttl: float = 10.0) -> Run:
    """A message that was published just now, as the log gives it back."""
    run = make_run("a", b"x", offset=offset, ttl=ttl)
    run.published_at = clock.wall_us()
    run.expires_at = 123.0  # of another process, and it means nothing here
    return run


def left_s(lifetimes: ExpiryClock, run: Run, clock: ManualClock) -> float:
    lifetimes.set_expiry([run])
    return run.expires_at - clock.monotonic()


def test_what_has_no_lifetime_is_left_alone() -> None:
    clock = ManualClock()
    run = stored(clock, 1, NEVER)
    ExpiryClock(clock, 1).set_expiry([run])
    assert run.expires_at == 123.0


@pytest.mark.parametrize(
    ("passed_s", "expected_s"),
    [(0.0, 10.0), (4.0, 6.0), (10.0, 0.0), (15.0, -5.0), (-HOUR_S, 10.0)],
    ids=["at once", "in time", "just over", "long over", "clock set back"],
)
def test_what_was_stored_before_the_start_has_what_is_left_and_never_more(
    passed_s: float, expected_s: float
) -> None:
    clock = ManualClock()
    run = stored(clock, 4)
    clock.jump(passed_s)  # while no server ran
    assert left_s(ExpiryClock(clock, 5), run, clock) == pytest.approx(expected_s)


@pytest.mark.parametrize("jump_s", [-HOUR_S, HOUR_S])
def test_a_clock_that_is_set_while_the_server_runs_changes_no_life(jump_s: float) -> None:
    clock = ManualClock()
    old = stored(clock, 4)
    lifetimes = ExpiryClock(clock, 5)
    before = stored(clock, 5)
    lifetimes.note(5)
    clock.advance(1.0)
    clock.jump(jump_s)
    after = stored(clock, 6)
    lifetimes.note(6)
    clock.advance(1.0)
    assert left_s(lifetimes, old, clock) == pytest.approx(8.0)
    assert left_s(lifetimes, before, clock) == pytest.approx(8.0)
    assert left_s(lifetimes, after, clock) == pytest.approx(9.0)


def test_a_clock_that_is_kept_right_in_small_steps_is_not_followed_step_by_step() -> None:
    clock = ManualClock()
    lifetimes = ExpiryClock(clock, 1)
    for offset in range(1, 100):
        clock.jump(0.001)
        lifetimes.note(offset)
    run = stored(clock, 99)
    assert left_s(lifetimes, run, clock) == pytest.approx(10.0, abs=0.5)
