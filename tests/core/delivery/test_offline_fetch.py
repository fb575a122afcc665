"""What a session is owed comes from the log: in chunks, in order, and what is not there is accounted for."""

import pytest

from penstock.core.access.access import OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.delivery import offline_fetch
from penstock.core.durability.records import BEHIND
from penstock.core.settings import CoreSettings, SessionSettings
from penstock.model import Policy
from tests.support.broker import Client, Stage
from tests.support.disk import Disk

SMALL = CoreSettings(sessions=SessionSettings(owed_messages=3))


def numbers(first: int, last: int) -> list[bytes]:
    return [f"{number:03}".encode() for number in range(first, last + 1)]


def publish(stage: Stage, payloads: list[bytes], topic: str = "a") -> None:
    sender = stage.client("s")
    for payload in payloads:
        sender.publish(topic, payload, qos=1)
    stage.settle()


def leave(stage: Stage, filter: str = "a", policy: Policy = Policy.DROP_NEWEST, name: str = "r") -> None:
    """A session that is away, and owed what the filter matches."""
    reader = stage.client(name, clean=False, expiry=3_600.0)
    reader.subscribe(filter, 1, policy=policy)
    stage.settle()
    reader.drop()


def come_back(stage: Stage, name: str = "r") -> Client:
    return stage.client(name, clean=False, expiry=3_600.0)


@pytest.mark.parametrize("at_once", [1, 2, 7, 1_000])
def test_everything_that_is_owed_is_fetched_in_chunks_and_in_order(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(offline_fetch, "MESSAGES_AT_ONCE", at_once)
    stage = Stage(disk=Disk())
    leave(stage)
    publish(stage, numbers(1, 20))
    back = come_back(stage)
    publish(stage, numbers(21, 22))  # while it is being fetched
    assert back.take_payloads() == numbers(1, 22)
    assert stage.broker.ledger.total == 0


def test_a_chunk_is_not_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_fetch, "CHUNK_BYTES", 2_000)
    stage = Stage(disk=Disk())
    leave(stage)
    publish(stage, [bytes(1_000)] * 7)
    asked: list[int] = []
    fetch = stage.log.fetch
    monkeypatch.setattr(
        stage.log, "fetch", lambda offsets, callback: (asked.append(len(offsets)), fetch(offsets, callback))
    )
    back = come_back(stage)
    stage.settle()
    assert len(back.take()) == 7
    assert asked == [2, 2, 2, 1]


def test_messages_leave_in_the_form_that_is_wanted_now() -> None:
    stage = Stage(disk=Disk())
    leave(stage)
    publish(stage, numbers(1, 2))
    back = come_back(stage)
    back.subscribe("a", 1, identifier=7)
    stage.settle()
    assert [each.identifiers for each in back.take()] == [(7,), (7,)]


def test_what_is_wanted_no_more_is_recorded_and_not_sent() -> None:
    stage = Stage(disk=Disk())
    leave(stage, "a")
    reader = come_back(stage)
    reader.subscribe("b", 1)
    stage.settle()
    reader.drop()
    publish(stage, numbers(1, 2), "a")
    publish(stage, numbers(3, 4), "b")
    back = come_back(stage)
    back.unsubscribe("a")
    stage.settle()
    assert back.take_payloads() == numbers(3, 4)
    assert stage.losses("r") == [("a", 1, 2, "session-ended")]


def test_what_has_left_the_log_is_recorded_with_the_reason() -> None:
    disk = Disk()
    stage = Stage(disk=disk)
    leave(stage)
    publish(stage, numbers(1, 5))
    disk.trim(2)
    del disk.content.runs[1]  # as if a block were damaged
    back = come_back(stage)
    stage.settle()
    assert back.take_payloads() == [b"003", b"005"]
    assert stage.losses("r") == [("", 1, 2, "retention"), ("", 4, 4, "damaged")]  # by their offsets


class Forgetful(OpenAccess):
    """Lets nobody read one topic, when told so."""

    forbidden = ""

    def may_read(self, identity: Identity, topic: str) -> bool:
        return topic != self.forbidden


def test_what_may_not_be_read_any_more_is_recorded_and_not_sent() -> None:
    access = Forgetful()
    stage = Stage(disk=Disk(), access=access)
    leave(stage, "+")
    publish(stage, numbers(1, 1), "a")
    publish(stage, numbers(2, 2), "b")
    access.forbidden = "a"
    back = come_back(stage)
    stage.settle()
    assert back.take_payloads() == [b"002"]
    assert stage.losses("r") == [("a", 1, 1, "not-authorized")]


def test_what_has_expired_meanwhile_is_recorded_and_not_sent() -> None:
    stage = Stage(disk=Disk())
    leave(stage)
    stage.client("s").publish("a", b"short", qos=1, ttl=10.0)
    publish(stage, [b"long"])
    stage.advance(11.0)
    back = come_back(stage)
    stage.settle()
    assert back.take_payloads() == [b"long"]
    assert stage.losses("r") == [("a", 1, 1, "expired")]


def test_a_session_that_goes_while_its_messages_are_fetched_loses_none() -> None:
    stage = Stage(disk=Disk())
    leave(stage)
    publish(stage, numbers(1, 3))
    first = come_back(stage)
    stage.scheduler.turn()  # it asks
    first.drop()
    second = come_back(stage)
    stage.settle()
    assert first.take() == []
    assert second.take_payloads() == numbers(1, 3)
    assert stage.broker.ledger.total == 0


def test_what_is_dropped_while_it_is_fetched_is_not_sent_and_nothing_else_goes_with_it() -> None:
    stage = Stage(SMALL, disk=Disk())
    leave(stage, policy=Policy.DROP_OLDEST)
    publish(stage, numbers(1, 3))
    back = come_back(stage)
    stage.scheduler.turn()  # it asks for three
    sender = stage.client("s")
    for payload in numbers(4, 5):
        sender.publish("a", payload, qos=1)
    stage.broker.flush()  # the oldest two are dropped
    stage.settle()
    assert back.take_payloads() == numbers(3, 5)
    assert stage.losses("r") == [("a", 1, 2, "owed-full")]


def test_what_a_policy_drops_from_the_offsets_is_recorded_with_topic_and_sequence() -> None:
    stage = Stage(SMALL, disk=Disk())
    leave(stage, policy=Policy.DROP_OLDEST)
    publish(stage, numbers(1, 5))
    assert stage.losses("r") == [("a", 1, 2, "owed-full")]


def test_what_an_ended_session_was_owed_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_fetch, "MESSAGES_AT_ONCE", 2)
    stage = Stage(disk=Disk())
    leave(stage)
    publish(stage, numbers(1, 5))
    stage.client("r", clean=True)
    stage.settle()
    assert stage.losses("r") == [("a", 1, 5, "session-ended")]


def test_retained_values_that_waited_when_a_session_went_come_back_as_values() -> None:
    stage = Stage(disk=Disk())
    for topic in ("v/1", "v/2"):
        stage.client("s").publish(topic, b"value", qos=1, retain=True)
    reader = stage.client("r", clean=False, expiry=3_600.0, window=1)
    reader.subscribe("v/#", 1)
    stage.settle()
    assert len(reader.take()) == 1
    publish(stage, [b"live"], "v/1")
    reader.drop()
    back = come_back(stage)
    stage.settle()
    taken = [(each.topic, each.payload, each.is_retained) for each in back.take()]
    assert taken == [("v/1", b"value", True), ("v/2", b"value", True), ("v/1", b"live", False)]


def test_a_form_is_found_for_a_topic_that_nobody_has_used_since_the_start() -> None:
    disk = Disk()
    before = Stage(disk=disk)
    leave(before)
    publish(before, numbers(1, 2))
    after = Stage(CoreSettings(), disk=disk)
    back = come_back(after)
    after.settle()
    assert back.take_payloads() == numbers(1, 2)
    assert "a" not in after.broker.topics


def test_what_has_expired_makes_room_for_what_is_fresh() -> None:
    disk = Disk()
    stage = Stage(SMALL, disk=disk)
    leave(stage)
    for payload in numbers(1, 3):
        stage.client("s").publish("a", payload, qos=1, ttl=10.0)
    stage.settle()
    assert len(disk.content.tables[BEHIND]) == 1
    stage.advance(11.0)
    assert len(disk.content.tables[BEHIND]) == 0
    publish(stage, [b"fresh"])
    assert stage.losses("r") == [("a", 1, 3, "expired")]
    assert stage.oldest_queued_offset == 4
    back = come_back(stage)
    stage.settle()
    assert back.take_payloads() == [b"fresh"]


def test_what_was_restored_expires_as_well() -> None:
    disk = Disk()
    before = Stage(SMALL, disk=disk)
    leave(before)
    before.client("s").publish("a", b"short", qos=1, ttl=10.0)
    before.settle()
    disk.crash()
    after = Stage(SMALL, disk=disk, clock=before.clock)
    after.advance(11.0)
    assert after.losses("r") == [("a", 1, 1, "expired")]
    assert not after.broker.sessions["r"].offline_queue


def test_a_session_that_came_back_for_one_connection_gets_everything_in_order() -> None:
    stage = Stage(disk=Disk())
    leave(stage)
    publish(stage, numbers(1, 3))
    back = stage.client("r", clean=False)
    stage.scheduler.turn()  # it asks
    stage.client("s").publish("a", b"004", qos=1)
    stage.broker.flush()
    stage.settle()
    assert back.take_and_acknowledge() == numbers(1, 4)
    stage.settle()
    assert stage.oldest_queued_offset is None  # nothing of this has to stay in the log
