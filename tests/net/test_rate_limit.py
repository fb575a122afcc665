"""Token buckets: what may happen at once, what in the long run, and how long a debt takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net.rate_limit import TokenBucket

START = 1_000.0
rates = st.floats(0.01, 10_000)
steps = st.lists(st.tuples(st.floats(0, 5), st.integers(0, 20)), max_size=30)


def taken(bucket: TokenBucket, now: float, most: int = 1_000) -> int:
    """How many tokens can be taken one by one."""
    return next((count for count in range(most) if not bucket.take(1, now)), most)


def test_a_new_bucket_is_full() -> None:
    assert taken(TokenBucket(1, 5), START) == 5
    assert TokenBucket(1, 5).is_full(START)


def test_what_is_given_back_can_be_taken_again_but_no_more_than_fits() -> None:
    bucket = TokenBucket(1, 5)
    assert bucket.take(3, START)
    bucket.give_back(1, START)
    assert taken(bucket, START) == 3
    bucket.give_back(9, START)
    assert taken(bucket, START) == 5


def test_tokens_come_back_at_the_rate() -> None:
    bucket = TokenBucket(4, 10)
    assert bucket.take(10, START)
    assert taken(bucket, START + 0.25) == 1
    assert taken(bucket, START + 1.75) == 6


def test_no_more_than_the_burst_is_saved_up() -> None:
    bucket = TokenBucket(100, 7)
    bucket.take(3, START)
    assert taken(bucket, START + 3_600) == 7


def test_a_count_is_taken_whole_or_not_at_all() -> None:
    bucket = TokenBucket(1, 5)
    assert not bucket.take(6, START)
    assert bucket.take(4, START)
    assert not bucket.take(2, START)
    assert bucket.take(1, START)


def test_more_than_the_burst_is_never_there() -> None:
    assert not TokenBucket(1_000, 5).take(6, START + 3_600)


def test_who_was_refused_loses_nothing() -> None:
    bucket = TokenBucket(1, 1)
    assert bucket.take(1, START)
    for tenth in range(1, 10):
        assert not bucket.take(1, START + tenth / 10)
    assert bucket.take(1, START + 1)


def test_a_charge_goes_into_debt_that_is_paid_before_anything_is_given() -> None:
    bucket = TokenBucket(10, 5)
    bucket.charge(25, START)  # 20 of them are owed
    assert bucket.wait_s(START) == pytest.approx(2.1)
    assert not bucket.take(1, START + 2)
    assert bucket.take(1, START + 2.1)
    assert bucket.wait_s(START + 2.1) == pytest.approx(0.1)


def test_there_is_no_wait_while_a_token_is_there() -> None:
    bucket = TokenBucket(2, 2)
    assert bucket.wait_s(START) == 0
    bucket.take(1, START)
    assert bucket.wait_s(START) == 0
    bucket.take(1, START)
    assert bucket.wait_s(START) == pytest.approx(0.5)
    assert bucket.wait_s(START + 0.125) == pytest.approx(0.375)


def test_a_bucket_is_full_again_when_all_was_paid_back() -> None:
    bucket = TokenBucket(10, 5)
    bucket.charge(6, START)
    assert not bucket.is_full(START + 0.5)
    assert bucket.is_full(START + 0.7)


def test_a_time_that_was_passed_already_gives_nothing_back() -> None:
    bucket = TokenBucket(1, 2)
    assert bucket.take(2, START + 10)
    assert not bucket.take(1, START)
    assert not bucket.take(1, START + 10.5)
    assert bucket.take(1, START + 11)


@given(rates, st.integers(1, 50), steps)
def test_never_more_is_given_than_burst_and_rate_allow(
    rate: float, burst: int, steps: list[tuple[float, int]]
) -> None:
    bucket, now, given = TokenBucket(rate, burst), START, 0
    for passed, count in steps:
        now += passed
        given += count if bucket.take(count, now) else 0
        assert given <= burst + (now - START) * rate + 1e-3


@given(rates, st.integers(1, 50), st.integers(0, 500))
def test_a_token_is_there_after_the_wait_and_not_long_before(rate: float, burst: int, charged: int) -> None:
    bucket = TokenBucket(rate, burst)
    bucket.charge(charged, START)
    wait_s = bucket.wait_s(START)
    if wait_s:
        assert not bucket.take(1, START + wait_s * 0.99)
    assert bucket.take(1, START + wait_s)
