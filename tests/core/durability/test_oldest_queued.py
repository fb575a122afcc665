"""Search for the oldest queued offset, over several turns of the loop."""

import pytest

from penstock.core.durability import oldest_queued
from penstock.core.durability.oldest_queued import OldestQueuedSearch
from tests.core.durability.test_broker_recovery import publish, subscribe
from tests.support.broker import Stage
from tests.support.disk import Disk


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(oldest_queued, "SESSIONS_A_STEP", 1)
    return Stage(disk=Disk())


def search(stage: Stage, found: list[int | None]) -> OldestQueuedSearch:
    broker = stage.broker
    return OldestQueuedSearch(broker.sessions.values(), broker.log.sequencer.head, found.append)


def test_each_session_is_examined_whatever_a_step_takes(stage: Stage) -> None:
    for number in range(5):
        publish(stage, b"before")
        subscribe(stage, f"r{number}", f"a/{number}").drop()
    for number in (3, 1, 4):
        publish(stage, b"queued", topic=f"a/{number}")
    assert stage.oldest_queued_offset == 6


def test_what_is_published_during_the_search_is_kept(stage: Stage) -> None:
    subscribe(stage, "early").drop()
    subscribe(stage, "late", "b").drop()
    found: list[int | None] = []
    searching = search(stage, found)
    assert searching.step()
    publish(stage, b"1")
    assert not searching.step()
    assert found == [1]


def test_what_a_shared_group_gives_to_another_member_during_the_search_is_kept(stage: Stage) -> None:
    first = subscribe(stage, "first", "$share/g/a/#")
    publish(stage, b"1")
    for name in ("second", "third"):
        subscribe(stage, name, "$share/g/a/#")
    found: list[int | None] = []
    searching = search(stage, found)
    assert searching.step()  # of the last
    first.drop()
    stage.settle()  # another one gets it
    publish(stage, b"2", b"3")
    while searching.step():
        pass
    assert found == [1]
