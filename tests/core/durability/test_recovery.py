"""At start: retained values, wills and shared groups are where they were."""

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.delivery import drain
from penstock.core.settings import CoreSettings
from penstock.errors import QuotaExceeded
from penstock.model import Properties, Will
from penstock.runs import NEVER
from tests.support.broker import Client, Stage
from tests.support.clock import ManualClock
from tests.support.disk import Disk
from tests.support.samples import make_run

LASTING = 3_600.0
SHARED = "$share/g/a"


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def connect(stage: Stage, name: str = "r", **others: object) -> Client:
    client = stage.client(name, clean=False, **{"expiry": LASTING, **others})  # type: ignore[arg-type]
    stage.settle()
    return client


def restart(disk: Disk, clock: ManualClock | None = None) -> Stage:
    """Kill the server and start it again."""
    disk.crash()
    disk.is_stuck = False
    return Stage(disk=disk, clock=clock)


def retain(stage: Stage, topic: str, payload: bytes, qos: int = 1, ttl: float = NEVER) -> None:
    stage.client("s").publish(topic, payload, qos=qos, retain=True, ttl=ttl)
    stage.settle()


def read_values(stage: Stage, filter: str = "#") -> list[tuple[str, bytes]]:
    reader = stage.client("reader")
    reader.subscribe(filter)
    stage.settle()
    return [(each.topic, each.payload) for each in reader.take()]


# Retained values


def test_a_retained_value_comes_back_with_its_sequence(disk: Disk) -> None:
    before = Stage(disk=disk)
    for payload in (b"old", b"new"):
        retain(before, "a/b", payload, qos=0)
    after = restart(disk)
    client = after.client("c")
    client.subscribe("a/+")
    after.settle()
    (message,) = client.take()
    assert (message.payload, message.sequence, message.is_retained) == (b"new", 2, True)
    assert after.client("p").publish("a/b", b"newer").run.sequence == 3


def test_a_retained_value_comes_back_with_everything_it_had(disk: Disk) -> None:
    before = Stage(disk=disk)
    properties = Properties("text/plain", b"id", "answers", 1, user=(("a", "b"),))
    sender = before.client("s")
    before.broker.publish(make_run("v", b"x", qos=2, retain=True, properties=properties), sender.session)
    before.settle()
    value = before.broker.topics["v"].retained
    assert restart(disk).broker.topics["v"].retained == value


def test_a_retained_value_that_was_deleted_stays_deleted(disk: Disk) -> None:
    before = Stage(disk=disk)
    retain(before, "a/b", b"value")
    retain(before, "a/b", b"")
    assert len(restart(disk).broker.retained) == 0


def test_a_value_that_was_not_committed_is_not_there(disk: Disk) -> None:
    before = Stage(disk=disk)
    retain(before, "v", b"committed")
    disk.is_stuck = True
    retain(before, "v", b"lost")
    assert read_values(restart(disk)) == [("v", b"committed")]


def test_the_values_of_the_server_itself_are_not_stored(disk: Disk) -> None:
    before = Stage(disk=disk)
    before.broker.publish_server("$SYS/x", b"1", retain=True)
    before.settle()
    assert read_values(restart(disk), "$SYS/#") == []


def test_the_life_of_a_value_runs_on_while_the_server_is_down(disk: Disk, clock: ManualClock) -> None:
    before = Stage(disk=disk, clock=clock)
    retain(before, "short", b"1", ttl=10.0)
    retain(before, "long", b"2", ttl=100.0)
    clock.advance(20.0)
    after = restart(disk, clock)
    reader = after.client("reader")
    reader.subscribe("#")
    after.settle()
    assert [(each.topic, each.left) for each in reader.take()] == [("long", 80)]
    assert set(disk.content.tables["retained"]) == {"long"}
    after.advance(80.0)
    assert len(after.broker.retained) == 0
    assert disk.content.tables["retained"] == {}


def test_a_clock_that_was_set_back_does_not_prolong_the_life_of_a_value(
    disk: Disk, clock: ManualClock
) -> None:
    retain(Stage(disk=disk, clock=clock), "v", b"1", ttl=100.0)
    clock.jump(-3_600)
    after = restart(disk, clock)
    after.advance(101.0)
    assert len(after.broker.retained) == 0


def test_values_that_were_still_being_sent_are_sent(disk: Disk) -> None:
    before = Stage(disk=disk)
    topics = [f"v/{number}" for number in range(6)]
    for topic in topics:
        retain(before, topic, b"x")
    reader = connect(before, window=2)
    reader.subscribe("v/#", 1)
    reader.subscribe("w", 1)
    before.settle()
    seen = [each.topic for each in reader.take()]
    assert len(seen) == 2
    reader.subscribe("u", 1)  # its record is written once more
    before.settle()
    back = connect(restart(disk))
    taken = back.take()
    assert {each.topic for each in taken if not each.is_again} | set(seen) == set(topics)
    assert all(each.is_retained for each in taken)
    assert [each.topic for each in taken if each.is_again] == seen


def test_values_that_have_all_left_are_not_sent_again(disk: Disk) -> None:
    before = Stage(disk=disk)
    retain(before, "v", b"x")
    reader = connect(before)
    reader.subscribe("v", 1)
    before.settle()
    assert len(reader.take_and_acknowledge()) == 1
    before.settle()
    assert connect(restart(disk)).take() == []


def test_what_was_published_while_values_were_being_sent_is_not_sent_twice(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "TURN_STEPS", 1)
    before = Stage(disk=disk)
    retain(before, "v/1", b"old")
    reader = connect(before)
    reader.pause()
    reader.subscribe("v/#", 2)
    before.settle()
    retain(before, "v/2", b"new", qos=2)
    taken = [(each.topic, each.is_retained) for each in connect(restart(disk)).take()]
    assert sorted(taken) == [("v/1", True), ("v/2", False)]


def test_values_that_were_asked_for_again_are_all_those_there_were_then(disk: Disk) -> None:
    before = Stage(disk=disk)
    reader = connect(before)
    reader.subscribe("v/#", 1)
    before.settle()
    reader.drop()
    retain(before, "v/1", b"newer than the subscription", qos=0)
    reader = connect(before)
    reader.pause()
    reader.subscribe("v/#", 1)
    before.settle()
    taken = connect(restart(disk)).take()
    assert [(each.payload, each.is_retained) for each in taken] == [(b"newer than the subscription", True)]


# Wills


def watch(stage: Stage) -> Client:
    watcher = stage.client("watcher")
    watcher.subscribe("wills/#", 1)
    stage.settle()
    return watcher


def test_the_will_of_a_session_that_did_not_return_is_published(disk: Disk, clock: ManualClock) -> None:
    will = Will("wills/c", b"gone", 1, False, delay=5.0)
    connect(Stage(disk=disk, clock=clock), will=will)
    after = restart(disk, clock)
    watcher = watch(after)
    after.advance(4.0)
    assert watcher.take() == []
    after.advance(1.0)
    assert watcher.take_payloads() == [b"gone"]
    assert after.broker.sessions["r"].will is None
    again = restart(disk, clock)
    watcher = watch(again)
    again.advance(10.0)
    assert watcher.take() == []


def test_the_will_of_a_session_that_returned_in_time_is_not_published(disk: Disk, clock: ManualClock) -> None:
    connect(Stage(disk=disk, clock=clock), will=Will("wills/c", b"gone", 1, False, delay=5.0))
    after = restart(disk, clock)
    watcher = watch(after)
    connect(after)
    after.advance(10.0)
    assert watcher.take() == []


def test_the_delay_of_a_will_runs_on_while_the_server_is_down(disk: Disk, clock: ManualClock) -> None:
    before = Stage(disk=disk, clock=clock)
    connect(before, will=Will("wills/c", b"gone", 1, False, delay=60.0)).drop()
    before.settle()
    clock.advance(50.0)
    after = restart(disk, clock)
    watcher = watch(after)
    after.advance(9.0)
    assert watcher.take() == []
    after.advance(1.0)
    assert watcher.take_payloads() == [b"gone"]


def test_the_will_of_a_session_that_ended_with_the_server_is_published_at_once_and_to_those_who_are_away(
    disk: Disk,
) -> None:
    before = Stage(disk=disk)
    away = connect(before)
    away.subscribe("wills/#", 1)
    before.settle()
    away.drop()
    before.client("guest", will=Will("wills/guest", b"gone", 1, True))
    before.settle()
    after = restart(disk)
    after.settle()
    assert "guest" not in after.broker.sessions
    again = restart(disk)  # nothing of it is left but what it left
    back = connect(again)
    assert back.take_payloads() == [b"gone"]
    assert read_values(again, "wills/#") == [("wills/guest", b"gone")]
    back.acknowledge(1)
    again.settle()
    assert connect(restart(disk)).take() == []


def test_who_said_goodbye_leaves_no_will(disk: Disk) -> None:
    before = Stage(disk=disk)
    will = Will("wills/x", b"gone", 1, False)
    before.client("guest", will=will).disconnect()
    connect(before, will=will).disconnect()
    before.settle()
    after = restart(disk)
    watcher = watch(after)
    after.advance(1.0)
    assert watcher.take() == []


# Shared groups


def share(stage: Stage, name: str, qos: int = 1, **others: object) -> Client:
    member = connect(stage, name, **others)
    member.subscribe(SHARED, qos)
    stage.settle()
    return member


def publish(stage: Stage, *payloads: bytes, qos: int = 1) -> None:
    sender = stage.client("s")
    for payload in payloads:
        sender.publish("a", payload, qos=qos)
    stage.settle()


def test_what_a_group_without_anyone_was_owed_comes_to_whoever_is_first(disk: Disk) -> None:
    before = Stage(disk=disk)
    for name in ("one", "two"):
        share(before, name).drop()
    publish(before, b"1", b"2", b"3")
    after = restart(disk)
    publish(after, b"4")
    assert connect(after, "two").take_payloads() == [b"1", b"2", b"3", b"4"]
    assert connect(after, "one").take() == []


def test_a_group_is_not_owed_what_came_before_it_was_behind(disk: Disk) -> None:
    before = Stage(disk=disk)
    member = share(before, "one")
    publish(before, b"1")
    member.take_and_acknowledge()
    before.settle()
    member.drop()
    publish(before, b"2")
    assert connect(restart(disk), "one").take_payloads() == [b"2"]


def test_what_a_member_had_not_acknowledged_at_qos_1_is_offered_to_all_again_first_and_in_order(
    disk: Disk,
) -> None:
    before = Stage(disk=disk)
    one = share(before, "one", window=2)
    publish(before, b"1", b"2", b"3")
    assert one.take_payloads() == [b"1", b"2"]
    after = restart(disk)
    taken = share(after, "other").take()
    assert [(each.payload, each.is_again) for each in taken] == [(b"1", False), (b"2", False), (b"3", False)]
    back = connect(after, "one")
    assert back.take() == []
    assert len(back.session.inflight or ()) == 0


def test_what_a_group_offers_again_is_still_offered_after_a_crash_and_only_until_it_was_taken(
    disk: Disk,
) -> None:
    before = Stage(disk=disk)
    one = share(before, "one")
    publish(before, b"1", b"2")
    one.drop()
    before.settle()
    middle = restart(disk)
    back = connect(middle, "one")
    assert back.take_and_acknowledge() == [b"1", b"2"]
    middle.settle()
    assert connect(restart(disk), "one").take() == []


def test_what_was_offered_again_and_taken_is_not_offered_by_the_next_start(disk: Disk) -> None:
    before = Stage(disk=disk)
    share(before, "one")
    publish(before, b"1", b"2")
    middle = restart(disk)
    other = share(middle, "other")
    assert other.take_and_acknowledge() == [b"1", b"2"]
    middle.settle()
    after = restart(disk)
    assert (connect(after, "one").take(), connect(after, "other").take()) == ([], [])


def test_what_was_offered_again_once_is_forgotten_when_the_group_is_behind_the_next_time(disk: Disk) -> None:
    before = Stage(disk=disk)
    share(before, "one").drop()
    publish(before, b"1")
    one = connect(before, "one")
    one.drop()
    one = connect(before, "one")
    assert one.take_and_acknowledge() == [b"1"]
    before.settle()
    one.drop()
    publish(before, b"2")
    assert connect(restart(disk), "one").take_payloads() == [b"2"]


def test_a_group_that_has_got_further_than_others_is_owed_only_the_rest(disk: Disk) -> None:
    before = Stage(disk=disk)
    away = connect(before, "away")
    away.subscribe("a", 1)
    before.settle()
    away.drop()
    member = share(before, "one")
    publish(before, b"1")
    member.take_and_acknowledge()
    before.settle()
    member.drop()
    publish(before, b"2")
    after = restart(disk)
    assert connect(after, "one").take_payloads() == [b"2"]
    assert connect(after, "away").take_payloads() == [b"1", b"2"]


def test_what_is_offered_again_and_not_there_any_more_is_recorded(disk: Disk) -> None:
    before = Stage(disk=disk)
    one = share(before, "one")
    publish(before, b"1", b"2")
    one.drop()
    before.settle()
    disk.trim(1)
    after = restart(disk)
    assert connect(after, "one").take_payloads() == [b"2"]
    assert after.losses(SHARED) == [("", 1, 1, "retention")]


def test_what_a_group_was_owed_and_cannot_be_read_is_recorded(disk: Disk) -> None:
    before = Stage(disk=disk)
    share(before, "one").drop()
    publish(before, b"1", b"2", b"3")
    disk.spoil(2)
    after = restart(disk)
    assert after.losses() == [("a", 2, 2, "damaged")]
    assert after.losses(SHARED) == after.losses()
    assert connect(after, "one").take_payloads() == [b"1", b"3"]


def test_at_qos_2_a_message_stays_with_the_member_it_was_sent_to(disk: Disk) -> None:
    before = Stage(disk=disk)
    one = share(before, "one", 2)
    publish(before, b"1", qos=2)
    assert one.take_payloads() == [b"1"]
    after = restart(disk)
    assert share(after, "other", 2).take() == []
    again = connect(after, "one").take()
    assert [(each.payload, each.is_again, each.number) for each in again] == [(b"1", True, 1)]


def test_what_a_guest_had_not_acknowledged_is_its_groups_again(disk: Disk) -> None:
    before = Stage(disk=disk)
    share(before, "lasting").drop()
    guest = share(before, "guest", expiry=0.0)
    publish(before, b"1", b"2", b"3")
    assert guest.take_payloads() == [b"1", b"2", b"3"]
    guest.acknowledge(2)
    before.settle()
    after = restart(disk)
    assert "guest" not in after.broker.sessions
    assert connect(after, "lasting").take_payloads() == [b"1", b"3"]


def test_what_a_guest_had_when_the_first_lasting_member_came_is_the_groups_too(disk: Disk) -> None:
    before = Stage(disk=disk)
    guest = share(before, "guest", expiry=0.0)
    publish(before, b"1")
    assert guest.take_payloads() == [b"1"]
    share(before, "lasting").drop()
    before.settle()
    assert connect(restart(disk), "lasting").take_payloads() == [b"1"]


def test_a_group_of_guests_is_gone_with_them(disk: Disk) -> None:
    before = Stage(disk=disk)
    guest = share(before, "guest", expiry=0.0)
    guest.pause()
    publish(before, b"1")
    after = restart(disk)
    after.settle()
    assert disk.content.tables.get("groups", {}) == {}
    late = share(after, "lasting")
    publish(after, b"2")
    assert late.take_payloads() == [b"2"]


def test_what_a_member_took_with_it_when_it_left_the_group_stays_its_own(disk: Disk) -> None:
    before = Stage(disk=disk)
    one = share(before, "one")
    share(before, "two").drop()
    publish(before, b"1")
    one.unsubscribe(SHARED)
    before.settle()
    after = restart(disk)
    assert connect(after, "two").take() == []
    assert connect(after, "one").take_payloads() == [b"1"]


def test_a_group_whose_members_want_nothing_stored_any_more_is_owed_nothing(disk: Disk) -> None:
    before = Stage(disk=disk)
    one = share(before, "one")
    one.pause()
    publish(before, b"1", b"2")
    one.subscribe(SHARED, 0)
    before.settle()
    after = restart(disk)
    assert connect(after, "one").take() == []


def test_more_values_than_there_may_be_topics_do_not_stop_a_start(disk: Disk) -> None:
    before = Stage(disk=disk)
    for name in "abc":
        retain(before, name, name.encode())
    disk.crash()
    after = Stage(CoreSettings(topic=TopicLimits(max_topics=2)), disk=disk)
    assert read_values(after) == [("a", b"a"), ("b", b"b"), ("c", b"c")]
    with pytest.raises(QuotaExceeded):
        after.client("s").publish("d", b"d")
