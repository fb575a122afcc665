"""Collections of garbage: the old objects of a large server are not visited again and again."""

import gc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from penstock.app.garbage import LONG_S, GarbagePauses, without_collections
from tests.support.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pauses(clock: ManualClock) -> Iterator[GarbagePauses]:
    pauses = GarbagePauses(clock.monotonic)
    pauses.begin()
    yield pauses
    pauses.end()


def collect(pauses: GarbagePauses, clock: ManualClock, generation: int, took_s: float) -> None:
    pauses.on_collection("start", {"generation": generation})
    clock.advance(took_s)
    pauses.on_collection("stop", {"generation": generation})


def frozen_by(pauses: GarbagePauses, clock: ManualClock, generation: int, took_s: float) -> bool:
    alive = [[number] for number in range(1_000)]
    before = gc.get_freeze_count()
    collect(pauses, clock, generation, took_s)
    return gc.get_freeze_count() >= before + len(alive)


def test_what_is_alive_at_the_start_is_frozen(pauses: GarbagePauses) -> None:
    assert gc.get_freeze_count() > 1_000


def test_long_full_collection_is_the_last_to_visit_what_is_alive(
    pauses: GarbagePauses, clock: ManualClock
) -> None:
    assert frozen_by(pauses, clock, 2, 2 * LONG_S)


@pytest.mark.parametrize(("generation", "took_s"), [(2, LONG_S / 2), (1, 2 * LONG_S), (0, 2 * LONG_S)])
def test_other_collections_freeze_nothing(
    pauses: GarbagePauses, clock: ManualClock, generation: int, took_s: float
) -> None:
    assert not frozen_by(pauses, clock, generation, took_s)


def test_collections_are_measured_as_they_happen_and_all_is_as_before_at_the_end() -> None:
    clock = ManualClock()

    def slow() -> float:
        clock.advance(2 * LONG_S)
        return clock.monotonic()

    pauses = GarbagePauses(slow)
    pauses.begin()
    alive = [[number] for number in range(1_000)]
    before = gc.get_freeze_count()
    gc.collect()
    frozen = gc.get_freeze_count() - before
    pauses.end()
    assert frozen >= len(alive)
    assert gc.get_freeze_count() == 0
    assert pauses.on_collection not in gc.callbacks


def test_cycles_that_were_made_later_are_still_collected(pauses: GarbagePauses) -> None:
    class Node:
        itself: object = None

    node = Node()
    node.itself = node
    del node
    assert gc.collect() >= 1


def test_a_start_makes_no_collection_and_they_are_made_again_after_it() -> None:
    assert gc.isenabled()
    with without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collections_are_made_again_after_a_start_that_failed() -> None:
    with suppress(ValueError), without_collections():
        raise ValueError("no door")
    assert gc.isenabled()
