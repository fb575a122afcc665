"""Offline queues after a restart: filled by column, in order, whatever else is in the log."""

import pytest

from penstock.core.durability import offline_recovery
from penstock.core.settings import CoreSettings, SessionSettings
from penstock.model import Reason
from tests.core.durability.test_broker_recovery import connect, publish, restart, subscribe
from tests.support.broker import Stage
from tests.support.clock import ManualClock
from tests.support.disk import Disk


@pytest.fixture(params=[1, 3, 100_000])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A disk whose messages are divided a few or many at once."""
    monkeypatch.setattr(offline_recovery, "MESSAGES_AT_ONCE", request.param)
    return Disk()


def publish_in_turn(stage: Stage, *topics: str) -> list[tuple[str, bytes]]:
    """Publish one message to each topic; return topics and payloads."""
    sender = stage.client("s")
    sent = [(topic, b"%d" % number) for number, topic in enumerate(topics)]
    for topic, payload in sent:
        sender.publish(topic, payload, qos=1)
        stage.settle()
    return sent


def test_sessions_with_topics_in_common_get_each_message_once_and_in_order(disk: Disk) -> None:
    before = Stage(disk=disk)
    subscribe(before, "all", "a/#").drop()
    subscribe(before, "one", "a/1").drop()
    both = subscribe(before, "both", "a/1")
    both.subscribe("b", 1)
    both.subscribe("a/+", 1)
    before.settle()
    both.drop()
    sent = publish_in_turn(before, "a/1", "b", "a/2", "a/1", "c", "b", "a/1", "a/2", "b")
    after = restart(disk)
    wanted = {"all": {"a/1", "a/2"}, "one": {"a/1"}, "both": {"a/1", "a/2", "b"}}
    for name, topics in wanted.items():
        expected = [payload for topic, payload in sent if topic in topics]
        assert connect(after, name).take_payloads() == expected


def test_a_session_that_had_some_of_its_messages_gets_the_rest(disk: Disk) -> None:
    before = Stage(disk=disk)
    subscribe(before, "none", "a/#").drop()
    some = subscribe(before, "some", "a/#")
    publish(before, b"1", b"2")
    assert some.take_and_acknowledge() == [b"1", b"2"]
    before.settle()
    some.drop()
    publish(before, b"3")
    publish(before, b"4", topic="a/c")
    after = restart(disk)
    assert connect(after, "some").take_payloads() == [b"3", b"4"]
    assert connect(after, "none").take_payloads() == [b"1", b"2", b"3", b"4"]


def test_messages_with_and_without_a_lifetime_stay_in_order(disk: Disk) -> None:
    clock = ManualClock()
    before = Stage(disk=disk, clock=clock)
    subscribe(before).drop()
    sender = before.client("s")
    for number, ttl in enumerate((0.0, 100.0, 0.0, 5.0, 0.0, 0.0)):
        sender.publish("a/b", b"%d" % number, qos=1, ttl=ttl)
        before.settle()
    clock.advance(20.0)
    assert connect(restart(disk, clock=clock)).take_payloads() == [b"0", b"1", b"2", b"4", b"5"]


def test_a_queue_that_is_too_long_for_new_settings_is_cut_by_its_policy(disk: Disk) -> None:
    before = Stage(disk=disk)
    subscribe(before, "full").drop()
    subscribe(before, "other", "b").drop()
    publish_in_turn(before, *["a/b", "b"] * 5)
    after = restart(disk, CoreSettings(sessions=SessionSettings(owed_messages=3)))
    kept = connect(after, "full").take_payloads()
    assert len(kept) == 3
    assert kept == sorted(kept)
    assert after.broker.ledger.counts[Reason.OFFLINE_QUEUE_FULL] == 4
