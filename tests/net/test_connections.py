"""Who is at a door: let in, counted, and waited for.

How many connections all doors may have together.
"""

import asyncio
import resource

import pytest

from penstock.core.diagnostics.counters import Counters
from penstock.net.address_limits import AddressLimits, AddressLimitSettings
from penstock.net.connections import FILES_KEPT_FREE, ConnectionLimit, ConnectionRegistry
from penstock.net.door import Peer
from tests.support.clock import ManualClock


class Visit:
    """A connection that only remembers what became of it."""

    def __init__(self, registry: ConnectionRegistry["Visit"], host: str = "10.0.0.1") -> None:
        self.peer = Peer(host, 1)
        self.has_arrived = False
        self.is_counted = False
        self.is_cut = False
        self._registry = registry

    def abort(self) -> None:
        self.is_cut = True
        self._registry.leave(self)

    def check_deadline(self, now: float) -> float | None:
        return None


class Place:
    """A door with room for a few, and what it counts."""

    def __init__(self, *, limit: int = 10, per_address: int = 0, rate: float = 0.0) -> None:
        clock = ManualClock()
        self.counters = Counters()
        self.address_limits = AddressLimits(
            AddressLimitSettings(per_address=per_address, rate_per_address=rate, burst_per_address=1), clock
        )
        self.registry: ConnectionRegistry[Visit] = ConnectionRegistry(
            clock, asyncio.get_running_loop(), self.counters, self.address_limits, ConnectionLimit(limit)
        )

    def visit(self, host: str = "10.0.0.1") -> Visit:
        """Somebody comes."""
        visit = Visit(self.registry, host)
        self.registry.enter(visit, deadline=60.0)
        return visit


async def test_who_finds_no_room_is_cut_and_counted() -> None:
    place = Place()
    place.registry.limit(1)
    first, second = place.visit(), place.visit()
    assert (first.is_cut, second.is_cut) == (False, True)
    assert place.registry.connections == {first}
    assert place.counters.connections_refused == 1


async def test_without_a_limit_of_its_own_a_door_has_the_room_of_all_doors() -> None:
    place = Place(limit=2)
    place.registry.limit(0)
    assert [place.visit().is_cut for _ in range(3)] == [False, False, True]


async def test_an_address_gets_its_place_back_when_a_connection_has_gone() -> None:
    place = Place(per_address=1)
    first, second = place.visit(), place.visit()
    assert (first.is_cut, second.is_cut) == (False, True)
    assert place.registry.leave(first)
    assert not place.visit().is_cut


async def test_who_was_refused_takes_nobodys_place_when_it_has_gone() -> None:
    place = Place(per_address=1)
    place.visit()
    refused = place.visit()
    assert not place.registry.leave(refused)
    assert place.visit().is_cut


async def test_handshakes_that_are_on_their_way_take_room() -> None:
    place = Place()
    place.registry.limit(2)
    place.visit()
    assert place.registry.admits("10.0.0.2", coming=0)
    assert not place.registry.admits("10.0.0.3", coming=1)
    assert place.counters.connections_refused == 1


async def test_an_address_that_comes_too_fast_may_not_begin_a_handshake() -> None:
    place = Place(rate=1.0)
    assert [place.registry.admits(host, 0) for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2")] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("count", [0, 3])
async def test_a_door_waits_no_longer_than_until_the_last_has_gone(count: int) -> None:
    place = Place()
    visits = [place.visit() for _ in range(count)]
    waiting = asyncio.create_task(place.registry.wait_until_gone(60.0))
    await asyncio.sleep(0)
    for visit in visits:
        assert not waiting.done()
        place.registry.leave(visit)
    await asyncio.wait_for(waiting, 10)


async def test_who_stays_is_cut_when_the_time_is_over() -> None:
    place = Place()
    visit = place.visit()
    await place.registry.wait_until_gone(0.01)
    place.registry.cut_all()
    assert visit.is_cut
    assert not place.registry.connections


def test_all_doors_count() -> None:
    budget, first, second = ConnectionLimit(3), [1], [1]
    budget.add(lambda: len(first))
    budget.add(lambda: len(second))
    assert not budget.is_full()
    assert budget.is_full(coming=1)
    second.append(1)
    assert budget.is_full()
    first.clear()
    assert not budget.is_full()


@pytest.mark.parametrize(
    ("files", "limit"), [(4_096, 4_096 - FILES_KEPT_FREE), (600, 300), (resource.RLIM_INFINITY, 2_000 - 500)]
)
def test_files_are_left_for_everything_else(monkeypatch: pytest.MonkeyPatch, files: int, limit: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, 2_000 if files < 0 else files))
    assert ConnectionLimit().limit == limit
