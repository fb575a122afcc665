"""Backoff of reconnections."""

import pytest

from penstock.client import Reconnection


def test_the_delay_doubles_up_to_its_limit_and_jitter_is_added() -> None:
    policy = Reconnection()
    assert [policy.delay_s(attempt, lambda: 0.0) for attempt in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert policy.delay_s(0, lambda: 0.5) == pytest.approx(1.05)
    assert policy.delay_s(10_000, lambda: 1.0) == pytest.approx(33.0)


def test_attempts_are_unlimited_unless_a_number_is_given() -> None:
    assert Reconnection().may_try(10**9)
    assert [Reconnection(attempts=2).may_try(attempt) for attempt in range(3)] == [True, True, False]
    assert not Reconnection(attempts=0).may_try(0)
    with pytest.raises(ValueError, match="not be negative"):
        Reconnection(initial_s=-1)
