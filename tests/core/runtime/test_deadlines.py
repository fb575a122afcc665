"""Deadlines of many objects: each is due in time, and traffic costs nothing."""

import random
from math import ceil, inf, nextafter

from penstock.core.runtime.deadlines import LATE_S, SPARE_BUCKETS, DeadlineChecks, Deadlines, Timeouts
from tests.support.clock import ManualClock, ManualScheduler


class Timed:
    """Waits for something."""


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
    scene.timeouts.discard(leaves)
    scene.timeouts.discard(leaves)
    assert (list(scene.timeouts), len(scene.timeouts)) == ([stays], 1)
    scene.scheduler.advance(2.0)
    assert scene.due == [stays]


def test_there_is_one_timer_for_all_and_none_when_nobody_waits() -> None:
    scene = Scene()
    everyone = [scene.wait(1.0 + number / 10) for number in range(100)]
    assert scene.scheduler.timers == 1
    for who in everyone:
        scene.timeouts.discard(who)
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


# Without a timer


def taken(deadlines: Deadlines[str], now: float) -> set[str]:
    found = set()
    while (item := deadlines.take(now)) is not None:
        found.add(item)
    return found


def test_only_those_are_found_whose_time_has_come() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for item, expires_at in zip("abc", (10.5, 12.0, 10.9), strict=True):
        deadlines.add(item, expires_at)
    assert taken(deadlines, 10.4) == set()
    assert taken(deadlines, 11.0) == {"a", "c"}
    assert taken(deadlines, 12.0) == {"b"}
    assert taken(deadlines, 1_000.0) == set()


def test_the_first_of_its_deadlines_counts() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for expires_at in (20.0, 10.0, 30.0):
        deadlines.add("a", expires_at)
    assert taken(deadlines, 10.0) == {"a"}
    assert taken(deadlines, 30.0) == set(), "it is entered once"
    deadlines.add("a", 30.0)
    assert taken(deadlines, 30.0) == {"a"}


def test_what_is_due_earlier_and_earlier_leaves_nothing_behind() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("b", 5_000.0)
    for number in range(1_000):
        deadlines.add("a", 4_000.0 - number)
    assert len(deadlines._order) == len(deadlines._buckets) <= 2 * 2 + SPARE_BUCKETS + 1
    assert taken(deadlines, 3_001.0) == {"a"}
    assert taken(deadlines, 5_000.0) == {"b"}
    assert not deadlines._buckets
    assert not deadlines._order
    assert not len(deadlines)


def test_what_comes_back_to_its_second_is_found_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for _ in range(3):
        deadlines.add("a", 10.0)
        deadlines.discard("a")
    deadlines.add("a", 10.0)
    deadlines.add("b", 10.0)
    assert taken(deadlines, 10.0) == {"a", "b"}


def test_what_has_gone_is_not_found() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("a", 10.0)
    deadlines.discard("a")
    deadlines.discard("a")
    assert taken(deadlines, 10.0) == set()


def test_they_are_taken_in_the_order_of_their_buckets_and_then_of_their_arrival() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for number in range(100):
        deadlines.add(number, 10.0 - number // 10)
    found = [deadlines.take(20.0) for _ in range(100)]
    assert found == [number for tens in reversed(range(10)) for number in range(10 * tens, 10 * tens + 10)]


def test_one_may_be_cancelled_or_added_while_its_bucket_is_taken() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for item in "abcd":
        deadlines.add(item, 10.0)
    assert deadlines.take(10.0) == "a"
    deadlines.discard("b")
    deadlines.add("e", 10.0)
    deadlines.add("c", 5.0)  # earlier than it was
    deadlines.add("a", 9.5)
    assert len(deadlines) == 4
    assert taken(deadlines, 10.0) == {"a", "c", "d", "e"}
    assert not len(deadlines)


def test_a_model_of_it_finds_the_same() -> None:
    chance = random.Random(7)
    deadlines: Deadlines[int] = Deadlines(50)
    model: dict[int, int] = {}
    now, found = 0.0, 0
    for _ in range(20_000):
        item = chance.randrange(50)
        match chance.randrange(4):
            case 0 | 1:
                when = now + chance.random() * 5
                deadlines.add(item, when)
                model[item] = min(ceil(when * 50), model.get(item, 10**9))
            case 2:
                deadlines.discard(item)
                model.pop(item, None)
            case _:
                now += chance.random() / 10
                for _ in range(chance.randrange(4)):
                    due = deadlines.take(now)
                    assert (due is None) == (not any(number <= now * 50 for number in model.values()))
                    if due is not None:
                        assert model.pop(due) <= now * 50
                        found += 1
        assert len(deadlines) == len(model)
        assert len(deadlines._buckets) <= 2 * 50 + SPARE_BUCKETS + 1
    assert found > 1_000


# Deadlines that move


class Patient:
    """Has a deadline, and may put it off."""

    def __init__(self, clock: ManualClock, again: list[float | None]) -> None:
        self._clock = clock
        self._again = again
        self.looked_at: list[float] = []

    def check_deadline(self, now: float) -> float | None:
        self.looked_at.append(now)
        again = self._again.pop(0)
        return None if again is None else self._clock.monotonic() + again


def make_checks() -> tuple[ManualClock, ManualScheduler, DeadlineChecks]:
    clock = ManualClock(monotonic=1000.25)
    scheduler = ManualScheduler(clock)
    return clock, scheduler, DeadlineChecks(clock, scheduler)


def test_each_is_looked_at_when_its_time_has_come_and_not_before() -> None:
    clock, scheduler, checks = make_checks()
    early, late = Patient(clock, [None]), Patient(clock, [None])
    checks.add(early, clock.monotonic() + 0.5)
    checks.add(late, clock.monotonic() + 3)
    scheduler.advance(2)
    assert len(early.looked_at) == 1
    assert early.looked_at[0] >= 1000.75
    assert late.looked_at == []
    scheduler.advance(3)
    assert len(late.looked_at) == 1
    assert 1003.25 <= late.looked_at[0] <= 1005.25


def test_nobody_is_looked_at_more_than_a_second_too_late() -> None:
    clock, scheduler, checks = make_checks()
    patients = [Patient(clock, [None]) for _ in range(30)]
    due = {patient: clock.monotonic() + number / 10 for number, patient in enumerate(patients)}
    for patient, when in due.items():
        checks.add(patient, when)
    scheduler.advance(5)
    assert all(0 <= patient.looked_at[0] - when < LATE_S for patient, when in due.items())


def test_who_names_another_time_is_looked_at_again_then() -> None:
    clock, scheduler, checks = make_checks()
    patient = Patient(clock, [5.0, 0.0, None])
    checks.add(patient, clock.monotonic())
    scheduler.advance(60)
    first, second, third = patient.looked_at
    assert second - first >= 5
    assert 0 < third - second <= 2


def test_many_entries_of_one_are_one_in_the_end() -> None:
    clock, scheduler, checks = make_checks()
    patient = Patient(clock, [3.0] * 100)
    for offset in range(5):
        checks.add(patient, clock.monotonic() + offset * 0.1)
    scheduler.advance(31)
    assert len(patient.looked_at) <= 11


def test_checks_rest_when_nobody_waits_and_begin_again_for_the_next() -> None:
    clock, scheduler, checks = make_checks()
    checks.add(Patient(clock, [None]), clock.monotonic())
    scheduler.advance(3)
    assert scheduler.timers == 0
    late = Patient(clock, [None])
    checks.add(late, clock.monotonic() + 1)
    scheduler.advance(3)
    assert len(late.looked_at) == 1


def test_there_is_no_timer_when_the_last_one_has_gone() -> None:
    clock, scheduler, checks = make_checks()
    patients = [Patient(clock, [None]) for _ in range(3)]
    for patient in patients:
        checks.add(patient, clock.monotonic() + 1_000)
    assert scheduler.timers == 1
    for patient in patients:
        checks.discard(patient)
    assert scheduler.timers == 0
    checks.add(patients[0], clock.monotonic() + 1)
    scheduler.advance(3)
    assert len(patients[0].looked_at) == 1


def test_one_added_while_another_is_looked_at_is_not_lost() -> None:
    clock, scheduler, checks = make_checks()
    second = Patient(clock, [None])

    class Opener(Patient):
        def check_deadline(self, now: float) -> float | None:
            checks.add(second, now + 1)
            return super().check_deadline(now)

    checks.add(Opener(clock, [None]), clock.monotonic())
    scheduler.advance(4)
    assert len(second.looked_at) == 1


def test_nothing_is_taken_before_its_time_by_the_rounding_of_a_product() -> None:
    for now in (1894264.88, 10.299999999999999, 0.1 + 0.2):
        deadlines = Deadlines[Timed](50)
        deadlines.add(Timed(), nextafter(now, inf))
        assert deadlines.take(now) is None
        assert deadlines.take(now + 0.04) is not None
