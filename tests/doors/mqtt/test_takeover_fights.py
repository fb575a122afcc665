"""Fights for one client identifier: noticed, told once a minute, and never mistaken for a new network."""

import pytest

from penstock.doors.mqtt.takeover_fights import TakeoverFight, TakeoverFightDetector
from tests.support.clock import ManualClock

ONE, OTHER = "192.0.2.1:40000", "192.0.2.2:50000"


class Fight:
    """Two clients that take a session from each other in turn."""

    def __init__(self, clock: ManualClock, detector: TakeoverFightDetector, client_id: str = "c") -> None:
        self._clock = clock
        self._detector = detector
        self._client_id = client_id
        self._holder, self._loser = ONE, OTHER

    def go_on(self, times: int, interval_s: float) -> list[TakeoverFight]:
        """So many take-overs, with a pause after each; answers what was told of."""
        told = []
        for _ in range(times):
            told.append(self._detector.note(self._client_id, self._holder, self._loser))
            self._holder, self._loser = self._loser, self._holder
            self._clock.advance(interval_s)
        return [one for one in told if one is not None]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def detector(clock: ManualClock) -> TakeoverFightDetector:
    return TakeoverFightDetector(clock)


@pytest.fixture
def fight(clock: ManualClock, detector: TakeoverFightDetector) -> Fight:
    return Fight(clock, detector)


def test_the_fifth_take_over_within_ten_seconds_is_a_fight(fight: Fight) -> None:
    assert fight.go_on(4, 2.5) == []
    assert fight.go_on(1, 0) == [TakeoverFight("c", (ONE, OTHER), 5)]


def test_take_overs_that_are_further_apart_are_none(fight: Fight) -> None:
    assert fight.go_on(100, 2.51) == []


def test_take_overs_before_a_rest_do_not_count(clock: ManualClock, fight: Fight) -> None:
    for _ in range(10):
        assert fight.go_on(4, 1) == []
        clock.advance(20)
    assert [told.count for told in fight.go_on(5, 1)] == [5]


def test_a_fight_is_told_of_once_a_minute_with_all_that_happened_meanwhile(fight: Fight) -> None:
    told = fight.go_on(500, 0.5)
    assert [one.count for one in told] == [5, 120, 120, 120, 120]


def test_a_fight_that_begins_again_within_the_minute_waits_for_its_end(
    clock: ManualClock, fight: Fight
) -> None:
    assert len(fight.go_on(5, 1)) == 1
    clock.advance(30)
    assert fight.go_on(20, 0.5) == []  # it was told of 31 to 41 seconds ago
    assert [told.count for told in fight.go_on(100, 0.5)] == [20 + 39]


def test_clients_are_told_apart(clock: ManualClock, detector: TakeoverFightDetector) -> None:
    one, other = Fight(clock, detector, "one"), Fight(clock, detector, "other")
    for _ in range(4):
        assert one.go_on(1, 0.1) == other.go_on(1, 0.1) == []
    assert [told.client_id for told in other.go_on(1, 0)] == ["other"]
    assert [told.client_id for told in one.go_on(1, 0)] == ["one"]


def test_no_more_clients_are_remembered_than_there_is_room_for(
    clock: ManualClock, detector: TakeoverFightDetector, fight: Fight
) -> None:
    detector._contests.limit = 100
    told = []
    for start in range(0, 1_000, 50):
        told += fight.go_on(1, 0.1)
        for number in range(start, start + 50):  # a network comes back, and everyone with it
            detector.note(str(number), ONE, OTHER)
    assert len(told) == 1  # it was used again before the others pushed it out
    assert len(detector._contests) == 100
    for number in range(100):
        detector.note(f"more {number}", ONE, OTHER)
    assert fight.go_on(4, 0) == []  # forgotten, also that it was told of a moment ago
    assert len(fight.go_on(1, 0)) == 1


def test_long_identifiers_are_not_kept(detector: TakeoverFightDetector) -> None:
    detector.note("x" * 60_000, ONE, OTHER)
    assert all(isinstance(key, int) for key in detector._contests)
