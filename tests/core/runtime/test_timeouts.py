"""Waits that end by themselves."""

from penstock.core.runtime.timeouts import Timed, Timeouts
from tests.support.clock import ManualClock, ManualScheduler


class Scene:
    """Timeouts, and who was told that its time is over."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.due: list[Timed] = []
        self.timeouts = Timeouts(self.clock, self.scheduler, self.due.append)

    def wait(self, seconds: float) -> Timed:
        who = Timed()
        self.timeouts.add(who, self.clock.monotonic() + seconds)
        return who


def test_nobody_is_told_before_its_time_and_everyone_soon_after() -> None:
    scene = Scene()
    who = scene.wait(0.51)
    scene.scheduler.advance(0.505)
    assert scene.due == []
    scene.scheduler.advance(0.025)
    assert scene.due == [who]


def test_the_shortest_wait_ends_first_however_late_it_began() -> None:
    scene = Scene()
    long = scene.wait(10.0)
    short = scene.wait(1.0)
    scene.scheduler.advance(1.02)
    assert scene.due == [short]
    scene.scheduler.advance(9.0)
    assert scene.due == [short, long]


def test_who_leaves_is_not_told() -> None:
    scene = Scene()
    stays, leaves = scene.wait(1.0), scene.wait(1.0)
    scene.timeouts.remove(leaves)
    scene.timeouts.remove(leaves)
    assert (list(scene.timeouts), len(scene.timeouts)) == ([stays], 1)
    scene.scheduler.advance(2.0)
    assert scene.due == [stays]


def test_there_is_one_timer_for_all_and_none_when_nobody_waits() -> None:
    scene = Scene()
    everyone = [scene.wait(1.0 + number / 10) for number in range(100)]
    assert scene.scheduler.timers == 1
    for who in everyone:
        scene.timeouts.remove(who)
    scene.scheduler.advance(1.1)
    assert (scene.scheduler.timers, scene.due) == (0, [])
    scene.wait(1.0)
    assert scene.scheduler.timers == 1


def test_whoever_is_told_may_wait_again() -> None:
    scene = Scene()
    scene.timeouts = Timeouts(
        scene.clock, scene.scheduler, lambda who: (scene.due.append(who), scene.wait(1.0))[0]
    )
    scene.wait(1.0)
    for _ in range(3):
        scene.scheduler.advance(1.02)
    assert len(scene.due) == 3
    assert len(scene.timeouts) == 1


def test_an_error_of_one_who_is_told_keeps_the_others_waiting_for_their_turn() -> None:
    scene = Scene()

    def fail_once(who: Timed) -> None:
        scene.due.append(who)
        if len(scene.due) == 1:
            raise ValueError("the first one")

    scene.timeouts = Timeouts(scene.clock, scene.scheduler, fail_once)
    scene.wait(1.0)
    scene.wait(1.0)
    scene.wait(2.0)
    try:
        scene.scheduler.advance(1.1)
    except ValueError:
        scene.scheduler.settle()
    scene.scheduler.advance(1.0)
    assert len(scene.due) == 3
