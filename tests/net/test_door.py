"""One wheel for very many deadlines: everyone is looked at in time, and traffic costs nothing."""

from penstock.net.deadline_wheel import LATE_S, DeadlineWheel
from tests.support.clock import ManualClock, ManualScheduler


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


def make_wheel() -> tuple[ManualClock, ManualScheduler, DeadlineWheel]:
    clock = ManualClock(monotonic=1000.25)
    scheduler = ManualScheduler(clock)
    return clock, scheduler, DeadlineWheel(clock, scheduler)


def test_each_is_looked_at_when_its_time_has_come_and_not_before() -> None:
    clock, scheduler, wheel = make_wheel()
    early, late = Patient(clock, [None]), Patient(clock, [None])
    wheel.add(early, clock.monotonic() + 0.5)
    wheel.add(late, clock.monotonic() + 3)
    scheduler.advance(2)
    assert len(early.looked_at) == 1
    assert early.looked_at[0] >= 1000.75
    assert late.looked_at == []
    scheduler.advance(3)
    assert len(late.looked_at) == 1
    assert 1003.25 <= late.looked_at[0] <= 1005.25


def test_nobody_is_looked_at_more_than_a_second_too_late() -> None:
    clock, scheduler, wheel = make_wheel()
    patients = [Patient(clock, [None]) for _ in range(30)]
    due = {patient: clock.monotonic() + number / 10 for number, patient in enumerate(patients)}
    for patient, when in due.items():
        wheel.add(patient, when)
    scheduler.advance(5)
    assert all(0 <= patient.looked_at[0] - when < LATE_S for patient, when in due.items())


def test_who_names_another_time_is_looked_at_again_then() -> None:
    clock, scheduler, wheel = make_wheel()
    patient = Patient(clock, [5.0, 0.0, None])
    wheel.add(patient, clock.monotonic())
    scheduler.advance(60)
    first, second, third = patient.looked_at
    assert second - first >= 5
    assert 0 < third - second <= 2


def test_many_entries_of_one_are_one_in_the_end() -> None:
    clock, scheduler, wheel = make_wheel()
    patient = Patient(clock, [3.0] * 100)
    for offset in range(5):
        wheel.add(patient, clock.monotonic() + offset * 0.1)
    scheduler.advance(31)
    assert len(patient.looked_at) <= 11


def test_wheel_rests_when_nobody_waits_and_turns_again_for_the_next() -> None:
    clock, scheduler, wheel = make_wheel()
    wheel.add(Patient(clock, [None]), clock.monotonic())
    scheduler.advance(3)
    assert scheduler.timers == 0
    late = Patient(clock, [None])
    wheel.add(late, clock.monotonic() + 1)
    scheduler.advance(3)
    assert len(late.looked_at) == 1


def test_one_added_while_another_is_looked_at_is_not_lost() -> None:
    clock, scheduler, wheel = make_wheel()
    second = Patient(clock, [None])

    class Opener(Patient):
        def check_deadline(self, now: float) -> float | None:
            wheel.add(second, now + 1)
            return super().check_deadline(now)

    wheel.add(Opener(clock, [None]), clock.monotonic())
    scheduler.advance(4)
    assert len(second.looked_at) == 1
