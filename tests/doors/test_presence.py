"""Who is at a door: let in, counted, and waited for."""

import asyncio

import pytest

from penstock.core.counters import Counters
from penstock.doors.base import Peer
from penstock.doors.guard import Guard, GuardSettings
from penstock.doors.presence import Presence
from penstock.doors.room import Room
from penstock.testing import ManualClock


class Visit:
    """A connection that only remembers what became of it."""

    def __init__(self, presence: Presence["Visit"], host: str = "10.0.0.1") -> None:
        self.peer = Peer(host, 1)
        self.has_arrived = False
        self.is_counted = False
        self.is_cut = False
        self._presence = presence

    def abort(self) -> None:
        self.is_cut = True
        self._presence.leave(self)

    def check_deadline(self, now: float) -> float | None:
        return None


class Place:
    """A door with room for a few, and what it counts."""

    def __init__(self, *, limit: int = 10, per_address: int = 0, rate: float = 0.0) -> None:
        clock = ManualClock()
        self.counters = Counters()
        self.guard = Guard(
            GuardSettings(per_address=per_address, rate_per_address=rate, burst_per_address=1), clock
        )
        self.presence: Presence[Visit] = Presence(
            clock, asyncio.get_running_loop(), self.counters, self.guard, Room(limit)
        )

    def visit(self, host: str = "10.0.0.1") -> Visit:
        """Somebody comes."""
        visit = Visit(self.presence, host)
        self.presence.enter(visit, deadline=60.0)
        return visit


async def test_who_finds_no_room_is_cut_and_counted() -> None:
    place = Place()
    place.presence.limit(1)
    first, second = place.visit(), place.visit()
    assert (first.is_cut, second.is_cut) == (False, True)
    assert place.presence.connections == {first}
    assert place.counters.connections_refused == 1


async def test_without_a_limit_of_its_own_a_door_has_the_room_of_all_doors() -> None:
    place = Place(limit=2)
    place.presence.limit(0)
    assert [place.visit().is_cut for _ in range(3)] == [False, False, True]


async def test_an_address_gets_its_place_back_when_a_connection_has_gone() -> None:
    place = Place(per_address=1)
    first, second = place.visit(), place.visit()
    assert (first.is_cut, second.is_cut) == (False, True)
    assert place.presence.leave(first)
    assert not place.visit().is_cut


async def test_who_was_refused_takes_nobodys_place_when_it_has_gone() -> None:
    place = Place(per_address=1)
    place.visit()
    refused = place.visit()
    assert not place.presence.leave(refused)
    assert place.visit().is_cut


async def test_handshakes_that_are_on_their_way_take_room() -> None:
    place = Place()
    place.presence.limit(2)
    place.visit()
    assert place.presence.admits("10.0.0.2", coming=0)
    assert not place.presence.admits("10.0.0.3", coming=1)
    assert place.counters.connections_refused == 1


async def test_an_address_that_comes_too_fast_may_not_begin_a_handshake() -> None:
    place = Place(rate=1.0)
    assert [place.presence.admits(host, 0) for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2")] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("count", [0, 3])
async def test_a_door_waits_no_longer_than_until_the_last_has_gone(count: int) -> None:
    place = Place()
    visits = [place.visit() for _ in range(count)]
    waiting = asyncio.create_task(place.presence.wait_until_gone(60.0))
    await asyncio.sleep(0)
    for visit in visits:
        assert not waiting.done()
        place.presence.leave(visit)
    await asyncio.wait_for(waiting, 10)


async def test_who_stays_is_cut_when_the_time_is_over() -> None:
    place = Place()
    visit = place.visit()
    await place.presence.wait_until_gone(0.01)
    place.presence.cut_all()
    assert visit.is_cut
    assert not place.presence.connections
