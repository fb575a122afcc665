"""What leaves when: at QoS 2 after the commit that knows of it, and nothing that could not be stored."""

from collections.abc import Callable

import pytest

from penstock.core.sessions.session import Ending
from tests.core.wire import Line
from tests.support.broker import Client, Stage
from tests.support.disk import Disk
from tests.support.encodings import PlainEncoding

EXPIRIES = pytest.mark.parametrize("expiry", [0.0, 60.0], ids=["of-a-connection", "lasting"])
"""Exactly once holds for every session, whether it is stored or not."""


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def stage(disk: Disk) -> Stage:
    return Stage(disk=disk)


Connect = Callable[..., Client]


@pytest.fixture
def connect(stage: Stage) -> Connect:
    """A reader of everything, and everything before it has settled."""

    def make(name: str = "r", qos: int = 2, expiry: float = 60.0, **others: object) -> Client:
        client = stage.client(name, clean=False, expiry=expiry, **others)  # type: ignore[arg-type]
        client.subscribe("#", qos)
        stage.settle()
        return client

    return make


@EXPIRIES
def test_a_delivery_at_qos_2_leaves_only_after_its_commit(
    stage: Stage, disk: Disk, connect: Connect, expiry: float
) -> None:
    reader = connect(expiry=expiry)
    disk.is_stuck = True
    stage.client("s").publish("a", b"x", qos=2)
    stage.settle()
    assert reader.take() == []
    disk.sync()
    assert reader.take_payloads() == [b"x"]


def test_deliveries_at_qos_0_and_1_leave_with_the_turn(stage: Stage, disk: Disk, connect: Connect) -> None:
    reader = connect(qos=1)
    disk.is_stuck = True
    sender = stage.client("s")
    sender.publish("a", b"0")
    sender.publish("a", b"1", qos=1)
    sender.publish("a", b"2", qos=2)  # it is wanted at QoS 1
    stage.settle()
    assert reader.take_payloads() == [b"0", b"1", b"2"]


def test_what_waits_for_its_commit_holds_back_what_is_behind_it(
    stage: Stage, disk: Disk, connect: Connect
) -> None:
    reader = connect()
    sender = stage.client("s")
    disk.is_stuck = True
    for payload, qos in ((b"1", 1), (b"2", 2), (b"3", 0)):
        sender.publish("a", payload, qos=qos)
    stage.settle()
    for payload, qos in ((b"4", 1), (b"5", 0), (b"6", 2)):
        sender.publish("a", payload, qos=qos)
    stage.settle()
    assert reader.take() == []
    disk.sync()
    stage.settle()
    assert reader.take_payloads() == [b"1", b"2", b"3"]
    disk.sync()
    assert reader.take_payloads() == [b"4", b"5", b"6"]


def test_nobody_else_waits_for_it(stage: Stage, disk: Disk, connect: Connect) -> None:
    strict, other = connect("strict", 2), connect("other", 1)
    disk.is_stuck = True
    stage.client("s").publish("a", b"x", qos=2)
    stage.settle()
    assert (strict.take_payloads(), other.take_payloads()) == ([], [b"x"])


def test_after_its_commit_a_reader_is_on_the_fast_path_again(stage: Stage, connect: Connect) -> None:
    reader = connect()
    sender = stage.client("s")
    for payload in (b"1", b"2", b"3"):
        sender.publish("a", payload, qos=2)
        stage.settle()
        assert reader.take_payloads() == [payload]
    assert reader.session.is_flowing


def test_a_message_that_is_too_large_for_a_reader_holds_nothing_back(
    stage: Stage, disk: Disk, connect: Connect
) -> None:
    reader = connect(window=1)
    reader.subscribe("#", encoding=PlainEncoding(qos=2, limit_bytes=40))
    stage.settle()
    disk.is_stuck = True
    sender = stage.client("s")
    sender.publish("a", bytes(100), qos=2)
    sender.publish("a", bytes(100), qos=2)
    sender.publish("a", b"small", qos=0)
    stage.settle()
    assert reader.take_payloads() == [b"small"]
    reader.pause()
    sender.publish("a", bytes(100), qos=2)
    sender.publish("a", b"small", qos=0)
    stage.settle()
    reader.unpause()
    assert reader.take_payloads() == [b"small"]


def test_a_message_that_was_too_large_does_not_open_the_gate_for_the_next(
    stage: Stage, disk: Disk, connect: Connect
) -> None:
    reader = connect()
    reader.subscribe("#", encoding=PlainEncoding(qos=2, limit_bytes=40))
    stage.settle()
    disk.is_stuck = True
    sender = stage.client("s")
    sender.publish("a", bytes(100), qos=1)
    sender.publish("a", b"1", qos=2)
    stage.settle()
    sender.publish("a", b"2", qos=2)
    stage.settle()
    disk.sync()
    sender.publish("a", b"3")
    stage.settle()
    assert reader.take_payloads() == [b"1"]
    disk.sync()
    stage.settle()
    assert reader.take_payloads() == [b"2", b"3"]


def test_a_reader_that_went_before_the_commit_gets_it_on_its_next_connection_and_once(
    stage: Stage, disk: Disk, connect: Connect
) -> None:
    reader = connect()
    sender = stage.client("s")
    disk.is_stuck = True
    sender.publish("a", b"1", qos=2)
    stage.settle()
    reader.drop()
    sender.publish("a", b"2", qos=2)
    stage.settle()
    disk.is_stuck = False
    disk.sync()
    stage.settle()
    assert reader.take() == []
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    taken = back.take()
    assert [each.payload for each in taken] == [b"1", b"2"]
    assert not any(each.is_again for each in taken)


def test_nothing_leaves_before_a_door_has_said_that_its_client_is_connected(stage: Stage, disk: Disk) -> None:
    reader = stage.client("r", clean=False, expiry=60.0)
    reader.subscribe("#", 1)
    stage.settle()
    reader.drop()
    stage.client("s").publish("a", b"1", qos=1, ttl=30.0)
    stage.settle()
    line = Line(stage, "r")  # it answers when the session is stored
    disk.is_stuck = True
    stage.client("s").publish("a", b"2", qos=1, ttl=30.0)
    stage.advance(1.0)  # what waits is looked at for its expiry, too
    assert list(line.down) == []
    disk.is_stuck = False
    disk.sync()
    stage.settle()
    assert [packet.payload for packet in line.down] == [b"", b"1", b"2"]


# Commits that fail


def fail(stage: Stage, disk: Disk) -> None:
    """Let the present commit fail, and the disk be well again."""
    disk.is_full = True
    stage.settle()
    disk.is_full = False


def recover(stage: Stage) -> None:
    stage.advance(1.0)


@EXPIRIES
def test_what_could_not_be_stored_is_not_sent_and_the_connection_ends(
    stage: Stage, disk: Disk, connect: Connect, expiry: float
) -> None:
    reader = connect(expiry=expiry)
    stage.client("s").publish("a", b"x", qos=2)
    fail(stage, disk)
    assert (reader.connection.writes, reader.connection.closed) == ([], Ending.UNSTORED)
    recover(stage)
    reader.drop()
    back = connect(expiry=expiry)
    assert back.take() == []
    assert stage.why("a", 1, "r") == "never-stored"


def test_what_is_lost_in_the_turn_in_which_it_was_to_leave_does_not_leave_later(
    stage: Stage, disk: Disk, connect: Connect
) -> None:
    reader = connect()
    reader.pause()
    disk.is_stuck = disk.is_full = True
    stage.client("s").publish("a", b"1", qos=2)
    stage.settle()
    reader.unpause()  # it has a number, and would leave with the commit of this turn
    disk.sync()  # the one before fails
    disk.is_stuck = disk.is_full = False
    recover(stage)
    assert (reader.connection.writes, reader.connection.closed) == ([], Ending.UNSTORED)


def test_what_was_stored_before_is_not_lost_when_it_could_not_leave(
    stage: Stage, disk: Disk, connect: Connect
) -> None:
    reader = connect(window=2)
    sender = stage.client("s")
    reader.pause()
    for payload, qos in ((b"1", 2), (b"2", 1), (b"3", 2)):
        sender.publish("a", payload, qos=qos)
    stage.settle()
    reader.unpause()
    fail(stage, disk)
    assert (reader.connection.writes, reader.connection.closed) == ([], Ending.UNSTORED)
    recover(stage)
    reader.drop()
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    assert back.take_payloads() == [b"1", b"2", b"3"]


def test_what_is_behind_it_keeps_its_place(stage: Stage, disk: Disk, connect: Connect) -> None:
    reader = connect()
    sender = stage.client("s")
    reader.pause()
    sender.publish("a", b"1", qos=2)
    sender.publish("a", b"2", qos=1)
    stage.settle()
    reader.unpause()  # both have numbers now, and wait for the commit
    fail(stage, disk)
    recover(stage)
    reader.drop()
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    taken = back.take()
    assert [each.payload for each in taken] == [b"1", b"2"]
    assert not any(each.is_again for each in taken)


def test_nothing_more_is_sent_to_a_connection_that_is_about_to_end(
    stage: Stage, disk: Disk, connect: Connect
) -> None:
    reader = connect()
    sender = stage.client("s")
    sender.publish("a", b"1", qos=2)
    fail(stage, disk)
    recover(stage)
    sender.publish("a", b"2", qos=1)
    stage.settle()
    assert reader.connection.writes == []
    reader.drop()
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    assert back.take_payloads() == [b"2"]


def test_a_crash_after_a_failure_sends_nothing_twice_and_loses_nothing(
    stage: Stage, disk: Disk, connect: Connect
) -> None:
    reader = connect()
    sender = stage.client("s")
    reader.pause()
    sender.publish("a", b"1", qos=2)
    stage.settle()
    reader.unpause()
    fail(stage, disk)
    recover(stage)
    disk.crash()
    after = Stage(disk=disk)
    back = after.client("r", clean=False, expiry=60.0)
    after.settle()
    assert back.take_payloads() == [b"1"]


def test_another_member_gets_what_could_not_leave_to_the_first(stage: Stage, disk: Disk) -> None:
    first, second = (stage.client(name, clean=False, expiry=60.0) for name in ("first", "second"))
    for member in (first, second):
        member.subscribe("$share/g/a", 2)
    stage.settle()
    second.pause()
    first.pause()
    stage.client("s").publish("a", b"1", qos=2)
    stage.settle()
    first.unpause()
    second.unpause()
    fail(stage, disk)
    recover(stage)
    stage.settle()
    closed = [member for member in (first, second) if member.connection.closed]
    assert len(closed) == 1
    (other,) = [member for member in (first, second) if member not in closed]
    assert [*closed[0].take_payloads(), *other.take_payloads()] == [b"1"]


def test_a_guest_gets_at_once_what_was_stored_before(stage: Stage, disk: Disk) -> None:
    sender = stage.client("s")
    sender.publish("v", b"value", qos=2, retain=True)
    stage.settle()
    disk.is_stuck = True
    guest = stage.client("guest")
    guest.subscribe("v", 2)
    stage.settle()
    assert guest.take_payloads() == [b"value"]
    sender.publish("v", b"new", qos=2)
    stage.settle()
    assert guest.take() == []
