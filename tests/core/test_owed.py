"""What an absent session still gets: a queue nobody can be held or closed for."""

import pytest

from penstock.core.owed import Owed
from penstock.core.policy import Decision, Limits
from penstock.model import Policy
from penstock.testing import PlainForm, make_run

FORM = PlainForm(qos=1)


def owe(policy: Policy, count: int) -> tuple[list[int], list[int], list[Decision]]:
    """Owe single messages to a session that may be owed three; answer what was kept and what dropped."""
    owed = Owed(Limits(3, 100))
    decisions, dropped = [], []
    for sequence in range(1, count + 1):
        decision, lost = owed.add(make_run("a", b"x", qos=1, sequence=sequence), FORM, policy)
        decisions.append(decision)
        dropped += [run.sequence for run in lost]
    return [run.sequence for run, _ in owed.take(100)], dropped, decisions


@pytest.mark.parametrize("policy", [Policy.DROP_NEWEST, Policy.BLOCK, Policy.DISCONNECT])
def test_the_newest_is_dropped_under_every_policy_that_does_not_ask_for_the_oldest(policy: Policy) -> None:
    kept, dropped, _ = owe(policy, 5)
    assert (kept, dropped) == ([1, 2, 3], [4, 5])


def test_the_oldest_is_dropped_where_the_policy_says_so() -> None:
    kept, dropped, _ = owe(Policy.DROP_OLDEST, 5)
    assert (kept, dropped) == ([3, 4, 5], [1, 2])


@pytest.mark.parametrize("policy", Policy)
def test_nobody_is_held_and_nothing_closed_for_someone_who_is_not_there(policy: Policy) -> None:
    _, _, decisions = owe(policy, 5)
    assert not any(decision.hold or decision.close for decision in decisions)
