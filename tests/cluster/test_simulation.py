"""Two links over a network from a seed: forwards are taken once and in order, and what is settled is there.

`SEED=17 pytest tests/cluster/test_simulation.py -k one_seed` plays one again.
"""

import os
from collections import Counter

import pytest

from penstock.cluster.actions import Action, Send, Take
from penstock.cluster.forwards import ForwardNumbers
from penstock.cluster.link import Link, Verdict
from penstock.wire.peer import Batch, Message, Settled
from tests.cluster.simulation import Broken, Bugs, World


def play(seed: int, bugs: Bugs | None = None) -> World:
    """One run; a failure names its seed."""
    world = World(seed, bugs)
    try:
        world.run()
    except Exception as error:
        raise Broken(f"SEED={seed}: {error}") from error
    return world


@pytest.mark.parametrize("block", range(10))
def test_everything_holds_in_many_seeds(block: int, scale: int) -> None:
    faults: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    verdicts: Counter[Verdict] = Counter()
    count = 20 if scale == 1 else 1_000
    for seed in range(block * count, (block + 1) * count):
        world = play(seed)
        faults += world.faults
        faults += world.closed
        seen += world.actions
        verdicts += world.verdicts
    for fault in ("cut", "crash", "refused", "half-made", "duplicate", "rollback"):
        assert faults[fault] > 5, f"{fault} was hardly tried"
    for reason in ("the peer is silent", "no hello", "a newer connection is there"):
        assert faults[reason] > 5, f"hardly any connection was closed because {reason}"
    assert min(seen["Acknowledge"], seen["Fail"], seen["Forwarded"], seen["Unblocked"]) > 100
    assert min(verdicts.values()) > 100 and len(verdicts) == len(Verdict)


def test_one_seed() -> None:
    world = play(int(os.environ.get("SEED", "1")))
    assert world.forwarded and world.acknowledged


def test_a_seed_decides_everything() -> None:
    first, second = play(5), play(5)
    assert (first.acknowledged, first.failed, first.now) == (second.acknowledged, second.failed, second.now)
    assert [each.disk for each in first.processes.values()] == [
        each.disk for each in second.processes.values()
    ]


class SettlesOldPublishes(Link):
    """Publishes of a connection that broke are settled on the next one."""

    __slots__ = ()

    def on_taken(self, take: Take, code: str = "") -> list[Action]:
        if take.is_forward:
            return super().on_taken(take, code)
        return self.send(Settled(take.shard, take.origin, False, take.first, take.last, code))


class SendsForwardsOnce(Link):
    """Forwards are not sent again on the next connection."""

    __slots__ = ()

    def _begin(self, now: float, connection: int) -> list[Action]:
        actions = super()._begin(now, connection)
        return [each for each in actions if not is_forward(each)]


def is_forward(action: Action) -> bool:
    return isinstance(action, Send) and isinstance(action.message, Batch) and action.message.is_forward


class TakesForwardsTwice(Link):
    """Forwards that are sent again are taken again."""

    __slots__ = ()

    def on_message(self, now: float, connection: int, message: Message) -> list[Action]:
        if isinstance(message, Batch) and message.is_forward and connection == self._connection:
            self._numbers = ForwardNumbers()
        return super().on_message(now, connection, message)


class ConfirmsUncommitted(Link):
    """Forwards that are sent again are confirmed as soon as they were taken."""

    __slots__ = ()

    def on_message(self, now: float, connection: int, message: Message) -> list[Action]:
        actions = super().on_message(now, connection, message)
        if isinstance(message, Batch) and message.is_forward and self.is_live and not actions:
            last = message.number + len(message.runs) - 1
            actions += self.send(Settled(message.shard, message.origin, True, message.number, last))
        return actions


@pytest.mark.parametrize(
    ("bugs", "complaint"),
    [
        (Bugs(forgets_numbers=True), "forwards of"),
        (Bugs(settles_early=True), "forwards of|acknowledged and not stored"),
        (Bugs(has_no_window=True), "are not settled"),
        (Bugs(link=SettlesOldPublishes), "acknowledged and not stored"),
        (Bugs(link=SendsForwardsOnce), "forwards of"),
        (Bugs(link=TakesForwardsTwice), "forwards of"),
        (Bugs(link=ConfirmsUncommitted), "forwards of"),
    ],
    ids=[
        "numbers are forgotten after a restart",
        "settled before it is taken",
        "no window",
        "publishes of an old connection are settled",
        "forwards are sent once",
        "forwards are taken twice",
        "forwards are confirmed before they are committed",
    ],
)
def test_a_planted_bug_is_found(bugs: Bugs, complaint: str) -> None:
    with pytest.raises(Broken, match=complaint):
        for seed in range(200):
            play(seed, bugs)
            print(f"not found with seed {seed}")
