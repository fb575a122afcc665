"""A value whose publish was refused because it could not be stored is not the topic's value."""

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.settings import CoreSettings
from tests.support.broker import Client, Stage
from tests.support.disk import Disk


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def stage(disk: Disk) -> Stage:
    return Stage(disk=disk)


@pytest.fixture
def sender(stage: Stage) -> Client:
    return stage.client("s")


def value_of(stage: Stage, topic: str = "a") -> bytes | None:
    value = stage.broker.topics[topic].retained if topic in stage.broker.topics else None
    return None if value is None else value.payload()


def check(stage: Stage, disk: Disk, expected: bytes | None) -> None:
    """The present value, in this server and in the next one."""
    assert value_of(stage) == expected
    disk.is_full = False
    stage.advance(1.0)
    disk.crash()
    assert value_of(Stage(disk=disk, clock=stage.clock)) == expected


def fail(stage: Stage, disk: Disk) -> None:
    disk.is_full = True
    stage.settle()


@pytest.mark.parametrize("payload", [b"refused", b""], ids=["replaced", "deleted"])
def test_the_value_before_it_is_put_back(stage: Stage, disk: Disk, sender: Client, payload: bytes) -> None:
    sender.publish("a", b"good", qos=1, retain=True)
    stage.settle()
    sender.publish("a", payload, qos=1, retain=True)
    fail(stage, disk)
    check(stage, disk, b"good")
    assert len(stage.broker.retained) == 1


def test_a_topic_that_had_none_has_none(stage: Stage, disk: Disk, sender: Client) -> None:
    sender.publish("a", b"refused", qos=1, retain=True)
    fail(stage, disk)
    check(stage, disk, None)
    assert len(stage.broker.retained) == 0


def test_of_several_that_were_refused_the_value_before_the_first_is_put_back(
    stage: Stage, disk: Disk, sender: Client
) -> None:
    sender.publish("a", b"good", qos=1, retain=True)
    stage.settle()
    disk.is_stuck = disk.is_full = True
    for payload in (b"1", b"2", b"3"):
        sender.publish("a", payload, qos=1, retain=True)
        sender.publish("a", payload * 2, qos=1, retain=True)
        stage.settle()
    disk.is_stuck = False
    disk.sync()
    check(stage, disk, b"good")


def test_what_was_committed_in_between_is_put_back(stage: Stage, disk: Disk, sender: Client) -> None:
    disk.is_stuck = True
    sender.publish("a", b"good", qos=1, retain=True)
    stage.settle()
    disk.sync()
    sender.publish("a", b"refused", qos=1, retain=True)
    stage.settle()
    disk.is_full = True
    disk.sync()
    disk.is_stuck = False
    check(stage, disk, b"good")


def test_a_value_at_qos_0_that_came_later_stays(stage: Stage, disk: Disk, sender: Client) -> None:
    sender.publish("a", b"good", qos=1, retain=True)
    stage.settle()
    sender.publish("a", b"refused", qos=1, retain=True)
    sender.publish("a", b"unasked", qos=0, retain=True)
    fail(stage, disk)
    check(stage, disk, b"unasked")


def test_a_value_at_qos_0_that_came_before_is_put_back(stage: Stage, disk: Disk, sender: Client) -> None:
    sender.publish("a", b"unasked", qos=0, retain=True)
    sender.publish("a", b"refused", qos=1, retain=True)
    fail(stage, disk)
    check(stage, disk, b"unasked")


def test_a_value_that_is_put_back_lives_no_longer_than_before(
    stage: Stage, disk: Disk, sender: Client
) -> None:
    sender.publish("a", b"good", qos=1, retain=True, ttl=60.0)
    stage.settle()
    stage.advance(40.0)
    sender.publish("a", b"refused", qos=1, retain=True)
    fail(stage, disk)
    disk.is_full = False
    stage.advance(10.0)
    disk.crash()
    after = Stage(disk=disk, clock=stage.clock)
    assert value_of(after) == b"good"
    after.advance(11.0)
    assert value_of(after) is None


def test_a_value_that_would_have_expired_meanwhile_is_not_put_back(
    stage: Stage, disk: Disk, sender: Client
) -> None:
    sender.publish("a", b"short", qos=1, retain=True, ttl=5.0)
    stage.settle()
    disk.is_stuck = disk.is_full = True
    sender.publish("a", b"refused", qos=1, retain=True)
    stage.advance(6.0)
    disk.sync()
    disk.is_stuck = False
    check(stage, disk, None)


def test_a_topic_that_was_forgotten_with_its_value_is_there_again(disk: Disk) -> None:
    stage = Stage(CoreSettings(topic=TopicLimits(max_topics=1)), disk=disk)
    sender = stage.client("s")
    sender.publish("a", b"good", qos=1, retain=True)
    stage.settle()
    disk.is_stuck = disk.is_full = True
    sender.publish("a", b"", qos=1, retain=True)
    stage.settle()
    stage.broker.topics["a"].ring = None  # as if its history had left by age
    stage.broker.topics.forget_unused()
    disk.sync()
    disk.is_stuck = False
    check(stage, disk, b"good")
