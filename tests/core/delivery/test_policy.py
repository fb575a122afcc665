"""The pure decision: how much fits, and what each policy does with the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.delivery.policy import Decision, Limits, decide, fitting
from penstock.model import Policy

small = st.integers(0, 12)


def naive_fitting(messages: int, size: int, limits: Limits, count: int, stride: int) -> int:
    """One message after the other, as long as both limits hold."""
    fits = 0
    while fits < count and messages + 1 <= limits.messages and size + stride <= limits.bytes:
        messages, size, fits = messages + 1, size + stride, fits + 1
    return fits


@given(small, st.integers(0, 60), small, st.integers(0, 60), small, small)
def test_what_fits_is_what_fits_one_by_one(
    messages: int, size: int, most: int, most_bytes: int, count: int, stride: int
) -> None:
    limits = Limits(most, most_bytes)
    expected = naive_fitting(messages, size, limits, count, stride)
    assert fitting(messages, size, limits, count, stride) == expected


def test_empty_messages_do_not_fit_where_the_bytes_are_used_up_already() -> None:
    assert fitting(1, 11, Limits(10, 10), 3, 0) == 0
    assert fitting(1, 10, Limits(10, 10), 3, 0) == 3


@pytest.mark.parametrize("policy", Policy)
def test_every_policy_takes_a_run_that_fits(policy: Policy) -> None:
    assert decide(policy, 3, 3) == Decision(3)


@pytest.mark.parametrize(
    ("policy", "decision"),
    [
        (Policy.DROP_NEWEST, Decision(2)),
        (Policy.DROP_OLDEST, Decision(5, evict=True)),
        (Policy.BLOCK, Decision(5, block=True)),
        (Policy.DISCONNECT, Decision(0, close=True)),
    ],
)
def test_a_run_that_does_not_fit_is_treated_as_its_policy_says(policy: Policy, decision: Decision) -> None:
    assert decide(policy, 5, 2) == decision


def test_there_is_a_decision_for_every_policy() -> None:
    assert len({decide(policy, 5, 2) for policy in Policy}) == len(Policy)
