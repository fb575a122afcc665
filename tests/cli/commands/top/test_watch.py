"""A server that is looked at again and again, and is not always there."""

from itertools import islice
from typing import Any

import pytest

from penstock.cli.commands.top.watch import Reading, Unavailable, Watch
from penstock.client import ConnectionLost, ConnectionRefused, HttpRefused


class Server:
    """Answers or fails as it is told."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self._answers = list(answers)

    def metrics(self, *, limit: int) -> dict[str, Any]:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def slow(self) -> list[dict[str, Any]]:
        return [{"client_id": "c"}]


class Clock:
    """Time that goes by only while somebody waits, and notes how long."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def watch(clock: Clock, *answers: dict[str, Any] | Exception) -> Watch:
    return Watch(Server(*answers), 2.0, clock)  # type: ignore[arg-type]


def test_a_server_that_is_away_is_asked_again_until_it_is_back() -> None:
    clock = Clock()
    away = (ConnectionLost("gone"), ConnectionRefused("not there"))
    looks = watch(clock, {"n": 1}, *away, {"n": 2}).readings(clock.wait)
    kinds = [type(each) for each in islice(looks, 4)]
    assert kinds == [Reading, Unavailable, Unavailable, Reading]
    assert clock.waits == [2.0, 2.0, 2.0, 2.0]


def test_the_look_before_is_the_last_that_there_was() -> None:
    clock = Clock()
    watching = watch(clock, {"n": 1}, ConnectionLost("gone"), {"n": 2})
    first = watching.read()
    assert first.before is None
    _, last = islice(watching.readings(clock.wait), 2)
    assert isinstance(last, Reading)
    assert last.before == first.after
    assert last.slow == [{"client_id": "c"}]


@pytest.mark.parametrize(
    "stopping",
    [HttpRefused("soon", status=503, code="shutting-down", retryable=True), HttpRefused("soon", status=503)],
)
def test_a_server_that_is_about_to_stop_is_away(stopping: HttpRefused) -> None:
    clock = Clock()
    assert isinstance(next(watch(clock, stopping).readings(clock.wait)), Unavailable)


def test_a_server_that_does_not_let_us_look_ends_it() -> None:
    clock = Clock()
    refusal = HttpRefused("no", status=403, code="not-authorized")
    with pytest.raises(HttpRefused):
        next(watch(clock, refusal).readings(clock.wait))
