"""A will that was accepted is published, also if it cannot be stored when its time comes."""

import pytest

from penstock.core.access.access import OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.durability.records import WILLS
from penstock.model import Will
from tests.support.broker import Client, Stage
from tests.support.disk import Disk

LASTING = 3_600.0
WILL = Will("will", b"gone", qos=1, retain=False)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def stage(disk: Disk) -> Stage:
    return Stage(disk=disk)


def connect(stage: Stage, expiry: float, will: Will = WILL) -> Client:
    """A client with a will, and someone who is to get it and is away."""
    read_wills(stage).drop()
    client = stage.client("c", clean=False, expiry=expiry, will=will)
    stage.settle()
    return client


def read_wills(stage: Stage) -> Client:
    reader = stage.client("r", clean=False, expiry=LASTING)
    if not reader.is_known:
        reader.subscribe("will", 1)
    stage.settle()
    return reader


def fail(stage: Stage, disk: Disk) -> None:
    """From now on nothing can be stored, and the log knows it."""
    disk.is_full = True
    stage.client("s").publish("will", b"lost", qos=1)
    stage.settle()


EXPIRIES = pytest.mark.parametrize("expiry", [0.0, LASTING], ids=["of-a-connection", "lasting"])


@EXPIRIES
def test_it_waits_while_nothing_can_be_stored_and_is_published_once(
    stage: Stage, disk: Disk, expiry: float
) -> None:
    client = connect(stage, expiry)
    fail(stage, disk)
    client.drop()
    stage.advance(5.0)
    assert stage.losses("c") == []
    disk.is_full = False
    stage.advance(1.0)
    stage.advance(1.0)
    assert read_wills(stage).take_and_acknowledge() == [b"gone"]
    assert disk.content.tables.get(WILLS, {}) == {}
    stage.advance(5.0)
    disk.crash()
    after = Stage(disk=disk)
    after.advance(5.0)
    assert read_wills(after).take() == []


@EXPIRIES
def test_it_is_published_again_if_the_commit_that_takes_it_fails(
    stage: Stage, disk: Disk, expiry: float
) -> None:
    client = connect(stage, expiry)
    disk.is_full = True
    client.drop()
    stage.settle()
    stage.advance(5.0)
    disk.is_full = False
    stage.advance(1.0)
    stage.advance(1.0)
    assert read_wills(stage).take_payloads() == [b"gone"]


def test_the_commit_that_takes_it_may_fail_more_than_once(stage: Stage, disk: Disk) -> None:
    client = connect(stage, 0.0)
    for _ in range(2):
        disk.is_full = True
        client.drop()
        stage.advance(1.0)
        disk.is_full = False
        stage.scheduler.advance(1.0)  # the disk is well, and fails again when the will is published
    stage.advance(1.0)
    assert read_wills(stage).take_payloads() == [b"gone"]
    assert disk.content.tables.get(WILLS, {}) == {}


@EXPIRIES
def test_a_crash_before_it_could_be_published_does_not_lose_it(
    stage: Stage, disk: Disk, expiry: float
) -> None:
    client = connect(stage, expiry)
    fail(stage, disk)
    client.drop()
    stage.settle()
    disk.is_full = False
    stage.scheduler.advance(1.0)  # what had changed is stored, and nobody has reaped yet
    disk.crash()
    after = Stage(disk=disk)
    after.advance(1.0)
    assert read_wills(after).take_payloads() == [b"gone"]
    assert disk.content.tables.get(WILLS, {}) == {}


def test_a_new_connection_of_the_same_client_does_not_cancel_it(stage: Stage, disk: Disk) -> None:
    client = connect(stage, LASTING)
    fail(stage, disk)
    client.drop()
    stage.client("c", clean=True)
    disk.is_full = False
    stage.advance(1.0)
    stage.advance(1.0)
    assert read_wills(stage).take_payloads() == [b"gone"]


def test_at_qos_0_it_is_not_published_twice(stage: Stage, disk: Disk) -> None:
    client = connect(stage, 0.0, Will("will", b"gone", qos=0, retain=True))
    watcher = stage.client("watcher")
    watcher.subscribe("will", 0)
    stage.settle()
    disk.is_full = True
    client.drop()
    stage.settle()
    disk.is_full = False
    stage.advance(5.0)
    assert watcher.take_payloads() == [b"gone"]
    value = stage.broker.topics["will"].retained
    assert value is not None
    assert value.payload() == b"gone"


def test_a_server_that_stops_leaves_it_to_the_next_one(stage: Stage, disk: Disk) -> None:
    client = connect(stage, 0.0)
    fail(stage, disk)
    client.drop()
    stage.settle()
    disk.is_full = False
    stage.scheduler.advance(1.0)
    stage.broker.stop()
    stage.advance(1.0)
    disk.crash()
    after = Stage(disk=disk)
    after.advance(1.0)
    assert read_wills(after).take_payloads() == [b"gone"]


def test_one_that_is_left_from_the_last_server_and_a_new_one_are_both_published(
    stage: Stage, disk: Disk
) -> None:
    client = connect(stage, 0.0)
    fail(stage, disk)
    client.drop()
    stage.settle()
    disk.is_full = False
    stage.scheduler.advance(1.0)
    disk.crash()
    after = Stage(disk=disk)
    client = connect(after, 0.0, Will("will", b"gone too", qos=1, retain=False))
    fail(after, disk)
    client.drop()
    after.settle()
    disk.is_full = False
    after.advance(1.0)
    after.advance(1.0)
    assert read_wills(after).take_payloads() == [b"gone", b"gone too"]


class Strict(OpenAccess):
    """Lets nobody publish, when told so."""

    is_closed = False

    def may_publish(self, identity: Identity, topic: str) -> bool:
        return not self.is_closed


def test_whether_it_may_be_published_is_decided_when_it_is(disk: Disk) -> None:
    access = Strict()
    stage = Stage(disk=disk, access=access)
    client = connect(stage, 0.0)
    fail(stage, disk)
    client.drop()
    access.is_closed = True
    disk.is_full = False
    stage.advance(1.0)
    stage.advance(1.0)
    assert read_wills(stage).take() == []
    assert stage.losses("c") == [("will", 0, 0, "not-authorized")]
    assert disk.content.tables.get(WILLS, {}) == {}
