"""Paused subscriptions: kept for a while, found by their own user alone, and after a restart."""

import pytest
from msgspec.structs import replace

from penstock.core.durability.records import PausedRecord
from tests.support.broker import Stage
from tests.support.clock import ManualClock
from tests.support.disk import Disk

TTL_S = 300.0


def record(user: str | None = "ann", position: int = 7, ttl: float = TTL_S) -> PausedRecord:
    return PausedRecord(
        user, "c", ("a", "b/#"), ttl, position, 1, receive_retained=True, max_buffer=5, since=3
    )


def restarted(stage: Stage, disk: Disk) -> Stage:
    """What comes up after a crash."""
    stage.settle()
    disk.crash()
    return Stage(disk=disk, clock=stage.clock)


def test_a_paused_subscription_is_taken_once_and_as_it_was_left() -> None:
    stage = Stage()
    stage.client("s").publish("a", b"x")
    stage.broker.paused.pause("id", record())
    assert (len(stage.broker.paused), "id" in stage.broker.paused) == (1, True)
    taken = stage.broker.paused.take("id", "ann")
    assert taken is not None
    assert (taken.filters, taken.position, taken.since) == (("a", "b/#"), 7, 3)
    assert (taken.receive_retained, taken.max_buffer, taken.client_id) == (True, 5, "c")
    assert stage.broker.paused.take("id", "ann") is None


@pytest.mark.parametrize("user", [None, "ben"])
def test_another_user_does_not_find_it(user: str | None) -> None:
    stage = Stage()
    stage.broker.paused.pause("id", record("ann"))
    assert stage.broker.paused.find("id", user) is None
    assert stage.broker.paused.take("id", user) is None
    assert stage.broker.paused.find("id", "ann") is not None


def test_it_is_forgotten_when_its_time_is_over() -> None:
    stage = Stage()
    stage.broker.paused.pause("id", record())
    stage.advance(TTL_S - 1)
    assert stage.broker.paused.find("id", "ann") is not None
    stage.scheduler.advance(1.0)
    assert stage.broker.paused.find("id", "ann") is None, "even before it is cleared away"
    stage.broker.reap()
    assert len(stage.broker.paused) == 0


def test_many_whose_time_is_over_are_gone_at_once_and_forgotten_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.core.sessions.paused_subscriptions.REAPED_AT_ONCE", 2)
    stage = Stage()
    paused = stage.broker.paused
    for id in ("one", "two", "three"):
        paused.pause(id, record())
    stage.clock.advance(TTL_S)
    now = stage.clock.monotonic()
    assert paused.reap(now), "there is one more"
    assert (len(paused), paused.find("three", "ann")) == (1, None)
    assert not paused.reap(now)
    assert len(paused) == 0


def test_it_is_paused_for_all_of_its_time_again_after_it_was_resumed() -> None:
    stage = Stage()
    stage.broker.paused.pause("id", record())
    stage.advance(TTL_S - 1)
    taken = stage.broker.paused.take("id", "ann")
    assert taken is not None
    stage.broker.paused.begin("id", taken)
    stage.advance(TTL_S)
    stage.broker.paused.pause("id", taken)
    stage.advance(TTL_S - 1)
    assert stage.broker.paused.find("id", "ann") is not None


def test_when_there_are_too_many_the_oldest_go() -> None:
    stage = Stage()
    stage.broker.paused.limit = 2
    for id in ("one", "two", "three"):
        stage.broker.paused.pause(id, record())
    assert [id in stage.broker.paused for id in ("one", "two", "three")] == [False, True, True]


def test_to_forget_tells_whether_it_was_paused() -> None:
    stage = Stage()
    stage.broker.paused.pause("id", record())
    assert stage.broker.paused.forget("id")
    assert not stage.broker.paused.forget("id")
    assert stage.broker.paused.find("id", "ann") is None


def test_without_a_durable_log_nothing_has_to_be_waited_for() -> None:
    told: list[Exception | None] = []
    Stage().broker.paused.when_stored(told.append)
    assert told == [None]


# With a durable log


def test_a_stream_is_stored_when_it_begins_and_told_when_that_is_safe() -> None:
    disk, told = Disk(), list[Exception | None]()
    stage = Stage(disk=disk)
    disk.is_stuck = True
    stage.broker.paused.begin("id", record())
    stage.broker.paused.when_stored(told.append)
    stage.settle()
    assert (told, len(stage.broker.paused)) == ([], 0)
    disk.sync()
    stage.settle()
    assert told == [None]


def test_after_a_crash_a_live_stream_counts_as_paused_from_the_restart_on() -> None:
    disk = Disk()
    stage = Stage(disk=disk)
    stage.broker.paused.begin("id", record())
    stage.settle()
    stage.advance(TTL_S * 10)
    stage = restarted(stage, disk)
    found = stage.broker.paused.find("id", "ann")
    assert found is not None
    assert (found.position, found.epoch) == (7, 1)
    stage.advance(TTL_S - 1)
    stage = restarted(stage, disk)
    assert stage.broker.paused.find("id", "ann") is not None
    stage.advance(1.0)
    assert stage.broker.paused.find("id", "ann") is None, "its time goes on however often the server starts"


def test_the_time_of_a_paused_one_goes_on_while_the_server_is_down() -> None:
    disk, clock = Disk(), ManualClock()
    stage = Stage(disk=disk, clock=clock)
    stage.broker.paused.pause("short", record(ttl=10.0))
    stage.broker.paused.pause("long", record())
    stage.settle()
    clock.advance(60.0)
    stage = restarted(stage, disk)
    assert ("short" in stage.broker.paused, "long" in stage.broker.paused) == (False, True)
    stage = restarted(stage, disk)
    assert len(stage.broker.paused) == 1, "nor does the store know it"


def test_one_that_is_taken_is_there_again_if_the_server_dies() -> None:
    disk = Disk()
    stage = Stage(disk=disk)
    stage.broker.paused.pause("id", record())
    stage.settle()
    assert stage.broker.paused.take("id", "ann") is not None
    stage = restarted(stage, disk)
    assert stage.broker.paused.find("id", "ann") is not None


def test_what_was_forgotten_does_not_come_back() -> None:
    disk = Disk()
    stage = Stage(disk=disk)
    stage.broker.paused.begin("live", record())
    stage.broker.paused.pause("paused", record())
    stage.settle()
    stage.broker.paused.forget("live")
    stage.broker.paused.forget("paused")
    stage = restarted(stage, disk)
    assert len(stage.broker.paused) == 0


def test_the_limit_holds_for_what_a_restart_brings_back() -> None:
    disk = Disk()
    stage = Stage(disk=disk)
    for number in range(4):
        stage.broker.paused.pause(f"{number}", record())
        stage.advance(1.0)
    stage = restarted(stage, disk)
    stage.broker.paused.limit = 2
    stage.broker.paused.pause("new", record())
    assert [id for id in ("0", "1", "2", "3", "new") if id in stage.broker.paused] == ["3", "new"]


def test_the_oldest_go_when_they_take_too_many_bytes() -> None:
    stage = Stage()
    paused = stage.broker.paused
    paused.pause("small", record())
    paused.limit_bytes = 10 * paused.bytes
    long = replace(record(), filters=tuple(f"{number:0200}" for number in range(10)))
    for id in ("one", "two", "three"):
        paused.pause(id, long)
    assert [id for id in ("small", "one", "two", "three") if id in paused] == ["two", "three"]
    for id in ("two", "three", "three"):
        paused.forget(id)
    assert (len(paused), paused.bytes) == (0, 0)
