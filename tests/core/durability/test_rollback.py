"""A commit that fails: nobody gets later what its publisher was told to send again."""

import pytest

from penstock.core.settings import CoreSettings, LogSettings, OutboxSettings
from penstock.errors import StorageUnavailable
from tests.support.broker import Client, Stage
from tests.support.disk import Disk
from tests.support.samples import make_run

LASTING = 3_600.0


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def stage(disk: Disk) -> Stage:
    return Stage(CoreSettings(outbox=OutboxSettings(messages=3)), disk=disk)


def connect(stage: Stage, name: str, filter: str = "a", qos: int = 1, expiry: float = LASTING) -> Client:
    client = stage.client(name, clean=False, expiry=expiry)
    client.subscribe(filter, qos)
    stage.settle()
    return client


def fail(stage: Stage, disk: Disk) -> None:
    """Let the present commit fail; then the disk is well again."""
    disk.is_full = True
    stage.settle()
    disk.is_full = False


def recover(stage: Stage) -> None:
    stage.advance(1.0)


def test_the_publisher_is_told(stage: Stage, disk: Disk) -> None:
    connect(stage, "r")
    told: list[Exception | None] = []
    receipt = stage.client("s").publish("a", b"x", qos=1)
    stage.broker.when_committed(receipt.ticket, told.append)
    fail(stage, disk)
    assert [type(failure) for failure in told] == [StorageUnavailable]


def test_whoever_waits_for_the_flush_is_called_before_those_who_are_told_of_the_failure(
    stage: Stage, disk: Disk
) -> None:
    connect(stage, "r")
    sender = stage.client("s")
    disk.is_stuck = disk.is_full = True
    sender.publish("a", b"1", qos=1)
    stage.settle()
    order: list[str] = []
    stage.broker.when_committed(sender.publish("nobody", b"2", qos=1).ticket, lambda _: order.append("flush"))
    stage.broker.when_committed(sender.publish("a", b"3", qos=1).ticket, lambda _: order.append("commit"))
    disk.sync()  # it fails in the middle of the turn
    assert order == ["flush", "commit"]


@pytest.mark.parametrize("expiry", [0.0, LASTING])
def test_it_leaves_no_outbox_any_more(stage: Stage, disk: Disk, expiry: float) -> None:
    reader = connect(stage, "r", expiry=expiry)
    reader.pause()
    sender = stage.client("s")
    sender.publish("a", b"stored", qos=1)
    stage.settle()
    sender.publish("a", b"lost", qos=1)
    sender.publish("a", b"unasked", qos=0)
    fail(stage, disk)
    recover(stage)
    reader.unpause()
    stage.settle()
    assert reader.take_payloads() == [b"stored", b"unasked"]
    assert stage.losses("r") == [("a", 2, 2, "never-stored")]


def test_it_is_owed_no_more(stage: Stage, disk: Disk) -> None:
    reader = connect(stage, "r")
    reader.drop()
    sender = stage.client("s")
    sender.publish("a", b"stored", qos=1)
    stage.settle()
    sender.publish("a", b"lost", qos=1)
    fail(stage, disk)
    assert len(reader.session.offline_queue or ()) == 1
    recover(stage)
    sender.publish("a", b"later", qos=1)
    stage.settle()
    back = stage.client("r", clean=False, expiry=LASTING)
    stage.settle()
    assert back.take_payloads() == [b"stored", b"later"]
    assert [row.reason for row in stage.broker.ledger.rows(client_id="r")] == ["never-stored"]


def test_a_shared_group_is_owed_it_no_more(stage: Stage, disk: Disk) -> None:
    member = connect(stage, "r", "$share/g/a", 2)
    member.drop()
    sender = stage.client("s")
    sender.publish("a", b"stored", qos=2)
    stage.settle()
    sender.publish("a", b"lost", qos=2)
    fail(stage, disk)
    recover(stage)
    back = stage.client("r", clean=False, expiry=LASTING)
    stage.settle()
    assert back.take_payloads() == [b"stored"]
    assert stage.losses("$share/g/a") == [("a", 2, 2, "never-stored")]


def test_what_was_published_in_the_turn_in_which_it_failed_reaches_nobody_who_wants_it_stored(
    stage: Stage, disk: Disk
) -> None:
    reader, other = connect(stage, "r"), connect(stage, "other", "b", 0)
    sender = stage.client("s")
    disk.is_stuck = disk.is_full = True
    sender.publish("a", b"before", qos=1)
    stage.settle()
    reader.take()
    sender.publish("a", b"lost", qos=1)
    sender.publish("b", b"not stored", qos=1)
    sender.publish("a", b"unasked")
    disk.sync()
    stage.settle()
    assert (reader.take_payloads(), other.take_payloads()) == ([b"unasked"], [b"not stored"])


def test_a_message_at_qos_2_can_be_sent_again_and_is_taken_then(stage: Stage, disk: Disk) -> None:
    reader = connect(stage, "r", qos=2)
    sender = stage.client("s", expiry=LASTING)
    first = sender.publish("a", b"stored", qos=2)
    stage.broker.begin_qos2(sender.session, 1, first.ticket)
    stage.settle()
    second = sender.publish("a", b"x", qos=2)
    stage.broker.begin_qos2(sender.session, 2, second.ticket)
    fail(stage, disk)
    assert list(sender.session.received or ()) == [1]  # it does not count as received
    recover(stage)
    disk.crash()
    assert list(Stage(disk=disk).broker.sessions["s"].received or ()) == [1]
    assert reader.take_payloads() == [b"stored"]


def test_while_nothing_can_be_stored_what_had_to_be_is_refused_and_the_rest_goes_on(
    stage: Stage, disk: Disk
) -> None:
    reader = connect(stage, "r")
    disk.is_full = True
    sender = stage.client("s")
    sender.publish("a", b"1", qos=1)
    stage.settle()
    reader.take()
    refused: list[str] = []
    runs = [make_run("a", b"2", qos=1), make_run("a", b"3"), make_run("a", b"4", qos=2)]
    stage.broker.publish_all(runs, sender.session, lambda run, error: refused.append(error.code))
    stage.settle()
    assert refused == ["storage-unavailable", "storage-unavailable"]
    assert reader.take_payloads() == [b"3"]
    with pytest.raises(StorageUnavailable):
        reader.subscribe("b", 1)
    with pytest.raises(StorageUnavailable):
        stage.client("new", expiry=LASTING)
    with pytest.raises(StorageUnavailable):
        stage.client("r", clean=False)
    stage.client("guest").subscribe("b", 1)
    disk.is_full = False
    recover(stage)
    reader.subscribe("b", 1)
    sender.publish("b", b"5", qos=1)
    stage.settle()
    assert reader.take_payloads() == [b"5"]


def test_changes_of_sessions_are_stored_when_the_disk_is_well_again(stage: Stage, disk: Disk) -> None:
    reader = connect(stage, "r")
    stored: list[str] = []
    disk.is_full = True
    reader.unsubscribe("a")
    stage.broker.when_change_stored(reader.session, lambda: stored.append("unsubscribed"))
    stage.advance(5.0)
    assert stored == []
    disk.is_full = False
    recover(stage)
    assert stored == ["unsubscribed"]
    disk.crash()
    assert Stage(disk=disk).broker.sessions["r"].subscriptions == {}


def test_what_was_acknowledged_before_is_there_after_a_crash_in_the_middle_of_it(
    stage: Stage, disk: Disk
) -> None:
    reader = connect(stage, "r")
    reader.drop()
    sender = stage.client("s")
    sender.publish("a", b"stored", qos=1)
    stage.settle()
    sender.publish("a", b"lost", qos=1)
    disk.is_full = True
    stage.settle()
    disk.crash()
    disk.is_full = False
    session = Stage(disk=disk).broker.sessions["r"]
    assert session.offline_queue is not None
    assert len(session.offline_queue) == 1


def test_an_acknowledged_delivery_of_what_was_not_stored_is_not_looked_for_after_a_crash(
    stage: Stage, disk: Disk
) -> None:
    reader = connect(stage, "r")
    stage.client("s").publish("a", b"lost", qos=1)
    fail(stage, disk)
    assert reader.take_payloads() == [b"lost"]  # at QoS 1 it had left already
    recover(stage)
    disk.crash()
    after = Stage(CoreSettings(log=LogSettings(capture=("#",))), disk=disk)
    assert after.broker.sessions["r"].inflight is not None
    assert len(after.broker.sessions["r"].inflight) == 0
    assert after.losses("r") == [("", 1, 1, "never-stored")]
