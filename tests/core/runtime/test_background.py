"""Work in steps: in the order of asking, and not for long in one turn of the loop."""

from collections.abc import Callable

import pytest

from penstock.core.runtime import background as module
from penstock.core.runtime.background import Background
from penstock.errors import PenstockError
from tests.support.clock import ManualClock, ManualScheduler


class Worker:
    """Takes some steps, and notes each."""

    def __init__(self, turns: Background, name: str, steps: int, done: list[str]) -> None:
        self._turns, self._name, self._steps, self._done = turns, name, steps, done
        self.on_step: Callable[[], None] = lambda: None
        self.failures: list[str] = []

    def work(self) -> None:
        self._done.append(self._name)
        self._steps -= 1
        self.on_step()
        if self._steps:
            self._turns.ask(self)

    def fail(self, error: PenstockError) -> None:
        self.failures.append(error.code)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def scheduler(clock: ManualClock) -> ManualScheduler:
    return ManualScheduler(clock)


@pytest.fixture
def turns(clock: ManualClock, scheduler: ManualScheduler) -> Background:
    return Background(clock, scheduler)


def test_who_is_alone_is_done_at_once(turns: Background) -> None:
    done: list[str] = []
    turns.ask(Worker(turns, "a", 3, done))
    assert done == ["a", "a", "a"]


def test_when_the_time_of_a_turn_is_over_the_others_wait(
    turns: Background, scheduler: ManualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORK_S", 0.0)  # one step in each turn
    done: list[str] = []
    for name in "abc":
        turns.ask(Worker(turns, name, 2, done))
    seen = [list(done)]
    for _ in range(5):
        scheduler.turn()
        seen.append(list(done))
    assert [len(each) for each in seen] == [1, 2, 3, 4, 5, 6]
    scheduler.settle()
    assert len(done) == 6
    assert scheduler.pending == 0


def test_who_has_asked_again_comes_after_those_who_wait(
    turns: Background, scheduler: ManualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORK_S", 0.0)
    done: list[str] = []
    first = Worker(turns, "a", 1, done)
    turns.ask(first)
    for name in "bcd":
        turns.ask(Worker(turns, name, 2, done))
    scheduler.settle()
    assert done == ["a", "b", "c", "d", "b", "c", "d"]


def test_who_leaves_has_no_turn(
    turns: Background, scheduler: ManualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORK_S", 0.0)
    done: list[str] = []
    turns.ask(Worker(turns, "a", 1, done))
    leaver = Worker(turns, "b", 1, done)
    turns.ask(leaver)
    turns.leave(leaver)
    scheduler.settle()
    assert done == ["a"]


def test_who_fails_does_not_keep_the_others_from_their_turn(
    turns: Background, scheduler: ManualScheduler
) -> None:
    done: list[str] = []
    broken = Worker(turns, "a", 1, done)

    def fail() -> None:
        turns.ask(Worker(turns, "b", 1, done))
        raise ZeroDivisionError

    broken.on_step = fail
    turns.ask(broken)
    scheduler.settle()
    assert done == ["a", "b"]
    assert broken.failures == ["internal"]


def test_who_asks_has_nothing_to_do_with_the_failures_of_those_who_wait(
    turns: Background, scheduler: ManualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORK_S", 0.0)
    done: list[str] = []
    turns.ask(Worker(turns, "a", 1, done))
    broken, asking = Worker(turns, "b", 1, done), Worker(turns, "c", 1, done)

    def fail() -> None:
        raise ZeroDivisionError

    def refuse(error: PenstockError) -> None:
        raise ConnectionResetError

    broken.on_step = fail
    monkeypatch.setattr(broken, "fail", refuse)
    turns.ask(broken)
    turns.ask(asking)
    monkeypatch.setattr(module, "WORK_S", 1.0)
    scheduler.settle()
    assert done == ["a", "b", "c"]
    assert asking.failures == []
