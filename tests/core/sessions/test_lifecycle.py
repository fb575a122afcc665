"""Sessions: taking over, coming back, being forgotten, and what is owed meanwhile."""

from time import thread_time

import pytest
from msgspec import json

from penstock.core.delivery.drops import MOST_UNRECORDED_BYTES
from penstock.core.diagnostics.drops_topic import DROPS_A_MESSAGE, DROPS_TOPIC
from penstock.core.durability.records import SessionRecord
from penstock.core.runtime import background
from penstock.core.sessions import wire_changes
from penstock.core.settings import CoreSettings, LogSettings, OutboxSettings, SessionSettings
from penstock.errors import QuotaExceeded, ShuttingDown
from penstock.model import Policy, Reason, Will
from tests.support.broker import Client, Stage, as_tagged
from tests.support.disk import Disk


def numbers(first: int, last: int) -> list[bytes]:
    return [f"{number:03}".encode() for number in range(first, last + 1)]


def publish_all(sender: Client, payloads: list[bytes], topic: str = "a", qos: int = 1) -> None:
    for payload in payloads:
        sender.publish(topic, payload, qos=qos)


# Taking over


def test_a_second_connection_takes_the_session_over_in_one_step() -> None:
    stage = Stage()
    sender = stage.client("s")
    old = stage.client("r", expiry=60.0)
    old.subscribe("a", 1)
    new = stage.client("r", clean=False, expiry=60.0)
    assert (new.is_known, old.connection.closed, new.session) == (True, "taken-over", old.session)
    publish_all(sender, numbers(1, 3))
    stage.settle()
    assert old.take() == []
    assert new.take_payloads() == numbers(1, 3)
    assert stage.broker.counters.takeovers == 1


def test_what_the_old_connection_had_not_sent_goes_to_the_new_one() -> None:
    stage = Stage()
    sender = stage.client("s")
    old = stage.client("r", expiry=60.0, window=2)
    old.subscribe("a", 1)
    publish_all(sender, numbers(1, 3))
    stage.settle()
    old.pause()
    publish_all(sender, numbers(4, 5))
    stage.settle()
    publish_all(sender, numbers(6, 6))  # not even flushed yet
    new = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    taken = new.take()
    assert [d.payload for d in taken] == numbers(1, 6)
    assert [d.is_again for d in taken] == [True, True, False, False, False, False]


def test_a_late_goodbye_of_the_old_connection_changes_nothing() -> None:
    stage = Stage()
    sender = stage.client("s")
    old = stage.client("r", expiry=60.0)
    old.subscribe("a")
    new = stage.client("r", clean=False, expiry=60.0)
    old.disconnect(expiry=0.0)
    old.drop()
    sender.publish("a", b"x")
    stage.settle()
    assert new.take_payloads() == [b"x"]
    assert "r" in stage.broker.sessions


def test_a_late_goodbye_to_a_forgotten_session_changes_nothing() -> None:
    stage = Stage()
    old = stage.client("r", expiry=60.0)
    new = stage.client("r", clean=True, expiry=60.0)
    assert old.session is not new.session
    old.disconnect()
    assert stage.broker.sessions["r"] is new.session
    assert new.session.connection is new.connection


# Forgetting


def test_a_clean_start_forgets_subscriptions_and_what_was_owed() -> None:
    stage = Stage()
    sender = stage.client("s")
    old = stage.client("r", expiry=60.0)
    old.subscribe("a", 1)
    publish_all(sender, numbers(1, 1))
    stage.settle()
    old.drop()
    publish_all(sender, numbers(2, 3))
    stage.settle()
    new = stage.client("r", clean=True, expiry=60.0)
    publish_all(sender, numbers(4, 4))
    stage.settle()
    assert not new.is_known
    assert new.take() == []
    assert new.session.subscriptions == {}
    assert stage.losses("r") == [("a", 1, 3, "session-ended")]


def test_a_session_without_expiry_ends_with_its_connection() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r")
    reader.subscribe("a", 1)
    reader.drop()
    publish_all(sender, numbers(1, 1))
    back = stage.client("r", clean=False)
    stage.settle()
    assert not back.is_known
    assert back.take() == []
    assert stage.broker.ledger.total == 0  # nobody was subscribed


def test_a_session_expires_after_its_time() -> None:
    stage = Stage(disk=Disk())
    stage.client("r", expiry=60.0).drop()
    stage.advance(59.0)
    assert "r" in stage.broker.sessions
    stage.advance(1.0)
    assert "r" not in stage.broker.sessions
    assert stage.broker.counters.sessions_expired == 1
    assert list(stage.state.scan("sessions")) == []


def test_the_time_of_a_session_begins_anew_with_each_absence() -> None:
    stage = Stage()
    client = stage.client("r", expiry=60.0)
    for _ in range(5):
        client.drop()
        stage.advance(50.0)
        client = stage.client("r", clean=False, expiry=60.0)
        assert client.is_known
        stage.advance(50.0)
    assert stage.broker.counters.sessions_expired == 0


def test_the_goodbye_may_change_how_long_a_session_is_kept() -> None:
    stage = Stage()
    stage.client("short", expiry=60.0).disconnect(expiry=5.0)
    stage.client("none", expiry=60.0).disconnect(expiry=0.0)
    assert "none" not in stage.broker.sessions
    stage.advance(6.0)
    assert "short" not in stage.broker.sessions


def test_no_session_is_kept_longer_than_the_settings_say() -> None:
    stage = Stage(CoreSettings(sessions=SessionSettings(max_expiry_s=100.0)))
    stage.client("r", expiry=float("inf")).drop()
    stage.advance(101.0)
    assert "r" not in stage.broker.sessions


def test_another_user_with_the_same_client_id_never_gets_the_old_state() -> None:
    stage = Stage()
    sender = stage.client("s")
    owner = stage.client("r", user="alice", expiry=60.0)
    owner.subscribe("a", 1)
    publish_all(sender, numbers(1, 1))
    stage.settle()
    owner.drop()
    publish_all(sender, numbers(2, 2))
    stage.settle()
    thief = stage.client("r", user="mallory", clean=False, expiry=60.0)
    publish_all(sender, numbers(3, 3))
    stage.settle()
    assert not thief.is_known
    assert thief.take() == []
    assert thief.session.subscriptions == {}
    assert stage.losses("r") == [("a", 1, 2, "session-ended")]


def test_there_may_be_only_so_many_sessions() -> None:
    stage = Stage(CoreSettings(sessions=SessionSettings(max_sessions=2)))
    stage.client("one", expiry=60.0).drop()
    stage.client("two")
    with pytest.raises(QuotaExceeded):
        stage.client("three")
    assert set(stage.broker.sessions) == {"one", "two"}
    assert stage.client("one", clean=False, expiry=60.0).is_known
    stage.client("one", clean=True)  # a new one in the place of an old one


def test_the_state_store_knows_persistent_sessions_and_forgets_the_others() -> None:
    stage = Stage(disk=Disk())
    client = stage.client("r", expiry=60.0)
    client.subscribe("a", 1)
    stage.client("s").subscribe("b")
    stage.settle()
    ((key, record),) = stage.state.scan("sessions")
    assert isinstance(record, SessionRecord)
    assert (key, list(record.subscriptions)) == ("r", ["a"])
    client.disconnect(expiry=0.0)
    stage.settle()
    assert list(stage.state.scan("sessions")) == []


# Coming back


def test_in_flight_then_owed_then_live_in_one_order_without_loss_or_double() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0, window=3)
    reader.subscribe("a", 1)
    publish_all(sender, numbers(1, 6))
    stage.settle()
    first = reader.take()
    assert [d.payload for d in first] == numbers(1, 3)
    assert reader.acknowledge(first[0].number)
    reader.drop()
    publish_all(sender, numbers(7, 9))
    stage.settle()
    back = stage.client("r", clean=False, expiry=60.0, window=3)
    publish_all(sender, numbers(10, 12))
    again = back.take()
    assert [(d.payload, d.number, d.is_again) for d in again] == [
        (b"002", first[1].number, True),
        (b"003", first[2].number, True),
    ]
    got: list[bytes] = []
    for delivered in again:
        back.acknowledge(delivered.number)
    stage.settle()
    while taken := back.take_and_acknowledge():
        got += taken
        stage.settle()
    assert got == numbers(4, 12)
    publish_all(sender, numbers(13, 13))
    stage.settle()
    assert back.take_payloads() == numbers(13, 13)
    assert back.session.is_flowing
    assert stage.broker.ledger.total == 0


def test_live_messages_at_qos_0_do_not_overtake_what_is_owed() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1)
    reader.drop()
    publish_all(sender, numbers(1, 2))
    stage.settle()
    back = stage.client("r", clean=False, expiry=60.0)
    sender.publish("a", b"003")
    sender.publish("a", b"004", qos=1)
    stage.settle()
    assert back.take_payloads() == numbers(1, 4)


def test_what_was_published_before_the_return_but_not_flushed_is_not_lost() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1)
    reader.drop()
    publish_all(sender, numbers(1, 1))
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    assert back.take_payloads() == numbers(1, 1)


def test_who_comes_back_with_a_smaller_window_gets_no_more_than_it_takes() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0, window=5)
    reader.subscribe("a", 1)
    publish_all(sender, numbers(1, 5))
    stage.settle()
    reader.drop()
    publish_all(sender, numbers(6, 8))
    stage.settle()
    back = stage.client("r", clean=False, expiry=60.0, window=2)
    stage.settle()
    again = back.take()
    assert [d.payload for d in again] == numbers(1, 5)
    for delivered in again[:3]:
        back.acknowledge(delivered.number)
    stage.settle()
    assert back.take() == []
    for delivered in again[3:]:
        back.acknowledge(delivered.number)
    stage.settle()
    assert back.take_and_acknowledge() == numbers(6, 7)
    stage.settle()
    assert back.take_payloads() == numbers(8, 8)


def test_a_qos_2_delivery_that_was_received_is_not_sent_again() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 2)
    publish_all(sender, numbers(1, 2), qos=2)
    stage.settle()
    one, two = reader.take()
    assert reader.receive(one.number)
    reader.drop()
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    assert [d.payload for d in back.take()] == [two.payload]
    assert back.acknowledge(one.number)
    assert not back.acknowledge(one.number)


def test_qos_0_for_an_absent_session_is_in_the_ledger() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1)
    reader.subscribe("b", 0)
    reader.drop()
    publish_all(sender, numbers(1, 3), qos=0)
    publish_all(sender, numbers(1, 2), topic="b", qos=1)
    stage.settle()
    assert stage.losses("r") == [("a", 1, 3, "not-connected"), ("b", 1, 2, "not-connected")]
    assert stage.why("a", 2, "r") == "not-connected"
    assert stage.why("a", 4, "r") is None


def test_what_waited_at_qos_0_when_the_connection_broke_is_in_the_ledger() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1)
    reader.pause()
    sender.publish("a", b"001", qos=1)
    sender.publish("a", b"002", qos=0)
    sender.publish("a", b"003", qos=1)
    stage.settle()
    reader.drop()
    assert stage.losses("r") == [("a", 2, 2, "disconnected")]
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    assert back.take_payloads() == [b"001", b"003"]


def test_what_was_published_as_a_connection_broke_is_in_the_ledger() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    sender.publish("a", b"x")
    reader.drop()
    stage.settle()
    assert stage.losses("r") == [("a", 1, 1, "not-connected")]


@pytest.mark.parametrize(
    ("policy", "kept", "lost"),
    [
        (Policy.DROP_NEWEST, numbers(1, 3), (4, 5)),
        (Policy.DROP_OLDEST, numbers(3, 5), (1, 2)),
        (Policy.BLOCK, numbers(1, 3), (4, 5)),
        (Policy.DISCONNECT, numbers(1, 3), (4, 5)),
    ],
)
def test_what_a_session_is_owed_has_a_limit_by_count(
    policy: Policy, kept: list[bytes], lost: tuple[int, int]
) -> None:
    stage = Stage(CoreSettings(sessions=SessionSettings(owed_messages=3)))
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1, policy=policy)
    reader.drop()
    publish_all(sender, numbers(1, 5))
    stage.settle()
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    assert back.take_payloads() == kept
    assert stage.losses("r") == [("a", *lost, "owed-full")]
    assert sender.connection.blocks == []


def test_what_a_session_is_owed_has_a_limit_by_bytes() -> None:
    stage = Stage(CoreSettings(sessions=SessionSettings(owed_bytes=10)))
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1)
    reader.drop()
    sender.publish("a", b"1234", b"5678", b"9abc", qos=1)
    stage.settle()
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    assert back.take_payloads() == [b"1234", b"5678"]
    assert stage.losses("r") == [("a", 3, 3, "owed-full")]


def test_when_a_session_ends_what_it_was_owed_is_in_the_ledger() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0, window=1)
    reader.subscribe("a", 1)
    publish_all(sender, numbers(1, 2))
    stage.settle()
    reader.drop()
    publish_all(sender, numbers(3, 4))
    stage.settle()
    stage.advance(61.0)
    assert stage.losses("r") == [("a", 1, 4, "session-ended")]
    assert stage.broker.ledger.total == 4


def test_what_expires_while_a_session_is_away_is_recorded_by_the_reaper() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1)
    reader.pause()
    sender.publish("a", b"001", qos=1, ttl=5.0)
    stage.settle()
    reader.drop()
    sender.publish("a", b"002", qos=1, ttl=5.0)
    sender.publish("a", b"003", qos=1, ttl=50.0)
    stage.settle()
    stage.advance(6.0)
    assert stage.losses("r") == [("a", 1, 2, "expired")]
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    assert [(d.payload, d.left) for d in back.take()] == [(b"003", 44)]


def test_who_comes_back_on_another_wire_gets_everything_in_its_new_form() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0, window=1, wire="old")
    reader.subscribe("a", 1)
    publish_all(sender, numbers(1, 2))
    stage.settle()
    reader.drop()
    publish_all(sender, numbers(3, 3))
    stage.settle()
    back = stage.client("r", clean=False, expiry=60.0, wire="new", reencode=as_tagged(7))
    stage.settle()
    publish_all(sender, numbers(4, 4))
    stage.settle()
    assert [(d.payload, d.identifiers) for d in back.take()] == [(p, (7,)) for p in numbers(1, 4)]


def test_retained_values_still_to_come_change_their_form_too() -> None:
    stage = Stage()
    sender = stage.client("s")
    for name in "ab":
        sender.publish(name, b"x", retain=True)
    reader = stage.client("r", expiry=60.0, wire="old")
    reader.subscribe("+")
    reader.drop()
    back = stage.client("r", clean=False, expiry=60.0, wire="new", reencode=as_tagged(7))
    stage.settle()
    assert [(d.is_retained, d.identifiers) for d in back.take()] == [(True, (7,))] * 2


def test_who_comes_back_on_the_same_wire_keeps_its_forms() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0, wire="same")
    reader.subscribe("a")
    reader.drop()
    back = stage.client("r", clean=False, expiry=60.0, wire="same", reencode=as_tagged(7))
    sender.publish("a", b"x")
    stage.settle()
    assert [d.identifiers for d in back.take()] == [()]


def test_a_shared_subscription_survives_another_wire() -> None:
    stage = Stage()
    sender = stage.client("s")
    member = stage.client("m", expiry=60.0, wire="old")
    member.subscribe("$share/g/a", 1)
    member.drop()
    publish_all(sender, numbers(1, 2))
    stage.settle()
    back = stage.client("m", clean=False, expiry=60.0, wire="new", reencode=as_tagged(7))
    stage.settle()
    assert [(d.payload, d.identifiers) for d in back.take()] == [(p, (7,)) for p in numbers(1, 2)]


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step in each turn of the loop, and two filters in each step."""
    monkeypatch.setattr(wire_changes, "FILTERS_A_STEP", 2)
    monkeypatch.setattr(background, "WORK_S", 0.0)


def rewired(stage: Stage, tag: int) -> Client:
    return stage.client("r", clean=False, expiry=60.0, window=2, wire=tag, reencode=as_tagged(tag))


@pytest.mark.usefixtures("small_steps")
def test_many_filters_change_their_form_in_steps_and_nothing_leaves_in_the_old_one() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0, window=2, wire="old")
    filters = [f"a/{number}" for number in range(9)]
    for filter in (*filters, "$share/g/b"):
        reader.subscribe(filter, 1)
    sent = numbers(1, 40)
    for payload in sent[:4]:
        sender.publish("a/0", payload, qos=1)
    stage.settle()
    reader.drop()
    for payload in sent[4:6]:
        sender.publish("a/8", payload, qos=1)
    stage.settle()
    back = rewired(stage, 7)
    turns = 0
    for number, payload in enumerate(sent[6:]):
        sender.publish(filters[number % 9], payload, qos=1)
        turns += not back.session.is_flowing and back.session.is_coming
        stage.scheduler.turn()
    sender.publish("b", b"shared", qos=1)
    assert turns > 2  # it took steps, and messages came meanwhile
    got: list[tuple[bytes, tuple[int, ...]]] = []
    while more := back.take():
        got += [(each.payload, each.identifiers) for each in more]
        for each in more:
            back.acknowledge(each.number)
        stage.settle()
    assert got == [(payload, (7,)) for payload in (*sent, b"shared")]
    assert stage.losses() == []


@pytest.mark.usefixtures("small_steps")
def test_a_client_that_leaves_amid_the_change_of_its_forms_gets_all_of_them_the_next_time() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0, wire="old")
    for number in range(9):
        reader.subscribe(f"a/{number}", 1)
    reader.drop()
    left = rewired(stage, 7)
    stage.scheduler.turn()
    left.unsubscribe("a/4")
    left.drop()
    for number in range(9):
        sender.publish(f"a/{number}", b"%d" % number, qos=1)
    stage.settle()
    back = rewired(stage, 8)
    stage.settle()
    got: list[tuple[bytes, tuple[int, ...]]] = []
    while more := back.take():
        got += [(each.payload, each.identifiers) for each in more]
        for each in more:
            back.acknowledge(each.number)
        stage.settle()
    assert got == [(b"%d" % number, (8,)) for number in range(9) if number != 4]
    again = rewired(stage, 7)  # a takeover, amid nothing
    stage.settle()
    sender.publish("a/0", b"x", qos=1)
    stage.settle()
    assert [(each.payload, each.identifiers) for each in again.take()] == [(b"x", (7,))]


# Many, and for long


def disconnect_all(count: int) -> float:
    stage = Stage()
    readers = [stage.client(f"r{number}") for number in range(count)]
    for reader in readers:
        reader.subscribe("a/#")
        reader.subscribe("+/b")
        reader.subscribe(f"own/{reader.client_id}")
    start = thread_time()
    for reader in readers:
        reader.drop()
    took = thread_time() - start
    assert stage.broker.sessions == {}
    assert stage.broker.filter_count == 0
    return took


def test_ten_thousand_disconnects_are_linear() -> None:
    few = min(disconnect_all(1_000) for _ in range(3))
    many = min(disconnect_all(10_000) for _ in range(2))
    assert many < 40 * few


def test_coming_and_going_for_long_leaves_nothing_behind() -> None:
    stage = Stage()
    client = stage.client("r", expiry=7 * 24 * 3600.0)
    client.subscribe("a")
    for _ in range(3_000):
        client.drop()
        client = stage.client("r", clean=False, expiry=7 * 24 * 3600.0)
    assert len(stage.broker._session_service._deadlines) < 1_100
    client.drop()
    stage.advance(7 * 24 * 3600.0)
    assert stage.broker.sessions == {}


def test_an_ended_session_is_not_looked_at_any_more() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1)
    reader.drop()
    sender.publish("a", b"x", qos=1, ttl=1_000.0)
    stage.settle()
    stage.advance(61.0)
    assert stage.losses("r") == [("a", 1, 1, "session-ended")]
    stage.advance(1_000.0)
    assert stage.broker.ledger.total == 1  # it did not expire as well


# News of what was not delivered


def test_drops_are_told_to_who_listens() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=1)))
    sender, slow, listener = stage.client("s"), stage.client("slow"), stage.client("l")
    listener.subscribe(DROPS_TOPIC)
    slow.subscribe("a")
    stage.broker.reap()
    slow.pause()
    publish_all(sender, numbers(1, 4))
    stage.settle()
    stage.advance(1.0)
    (delivered,) = listener.take()
    assert b'"client_id":"slow"' in delivered.payload
    assert b'"first":2,"last":4,"count":3' in delivered.payload
    assert b'"reason":"outbox-full"' in delivered.payload
    stage.advance(1.0)
    assert listener.take() == []


def drops_in_the_log(stage: Stage) -> list[tuple[str, str, int]]:
    """Who did not get how many messages of which topic, as the ring has it: what is kept is in there, too."""
    topic = stage.broker.topics.get(DROPS_TOPIC)
    told = [run.payload(0) for run in topic.runs] if topic is not None and topic.rules.is_kept else []
    rows = [row for payload in told for row in json.decode(payload)]
    return [(row["client_id"], row["topic"], row["count"]) for row in rows]


def test_drops_are_told_to_a_log_that_keeps_them_from_the_first_moment_on() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=1), log=LogSettings(capture=("$penstock/#",))))
    sender, slow = stage.client("s"), stage.client("slow")
    slow.subscribe("a")
    slow.pause()
    publish_all(sender, numbers(1, 4))
    stage.settle()
    assert drops_in_the_log(stage) == []
    stage.advance(1.0)
    assert drops_in_the_log(stage) == [("slow", "a", 3)]
    stage.advance(1.0)
    assert drops_in_the_log(stage) == [("slow", "a", 3)]


def test_drops_are_not_published_for_a_log_that_keeps_other_topics() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=1), log=LogSettings(capture=("#",))))
    sender, slow = stage.client("s"), stage.client("slow")
    slow.subscribe("a")
    slow.pause()
    publish_all(sender, numbers(1, 4))
    stage.settle()
    stage.advance(1.0)
    assert DROPS_TOPIC not in stage.broker.topics


def test_what_is_dropped_when_the_server_ends_reaches_the_log_as_well() -> None:
    stage = Stage(CoreSettings(log=LogSettings(capture=("$penstock/drops",))))
    sender, slow = stage.client("s"), stage.client("slow")
    slow.subscribe("a")
    slow.pause()
    publish_all(sender, numbers(1, 4))
    stage.broker.stop()
    stage.broker.close()
    stage.broker.flush()
    assert drops_in_the_log(stage) == [("slow", "a", 4)]


def test_drops_of_the_news_themselves_are_counted_and_not_told() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=1)))
    sender, slow, listener = stage.client("s"), stage.client("slow"), stage.client("l")
    listener.subscribe("$penstock/#")
    slow.subscribe("a")
    stage.broker.reap()
    listener.pause()
    slow.pause()
    for number in range(4):
        publish_all(sender, numbers(number, number + 1))
        stage.settle()
        stage.advance(1.0)
    assert [row[0] for row in stage.losses("l")] == [DROPS_TOPIC]
    listener.unpause()
    stage.settle()
    assert all(DROPS_TOPIC.encode() not in d.payload for d in listener.take())


def test_what_was_dropped_before_anyone_listened_is_no_news() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=1)))
    sender, slow, listener = stage.client("s"), stage.client("slow"), stage.client("l")
    slow.subscribe("a")
    slow.pause()
    listener.subscribe(DROPS_TOPIC)
    stage.broker.reap()
    publish_all(sender, numbers(1, 2))
    stage.settle()
    listener.unsubscribe(DROPS_TOPIC)
    stage.advance(1.0)
    listener.subscribe(DROPS_TOPIC)
    stage.advance(1.0)
    assert listener.take() == []


# The end


def test_a_connection_that_core_closes_is_detached_in_the_next_turn_and_its_will_published() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=1)))
    sender, watcher = stage.client("s"), stage.client("w")
    watcher.subscribe("gone")
    slow = stage.client("r", expiry=60.0, will=Will("gone", b"cut", qos=0, retain=False))
    slow.subscribe("a", policy=Policy.DISCONNECT)
    slow.pause()
    publish_all(sender, numbers(1, 2), qos=0)
    stage.broker.flush()
    assert (slow.connection.closed, slow.session.connection) == ("slow", slow.connection)
    stage.settle()
    assert slow.session.connection is None
    assert watcher.take_payloads() == [b"cut"]


@pytest.mark.parametrize("is_final", [False, True])
def test_a_connection_that_ends_within_a_delivery_gets_nothing_more(is_final: bool) -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.session.is_resumable = True
    stage.broker.disconnect_soon(reader.session, reader.connection, is_final=is_final)
    publish_all(sender, numbers(1, 2), qos=0)
    stage.broker.flush()
    stage.settle()
    assert (reader.connection.writes, reader.session.connection) == ([], None)
    assert stage.losses("r") == ([("a", 1, 2, "disconnected")] if is_final else [])


def test_a_connection_that_was_taken_over_does_not_stop_its_successor() -> None:
    stage = Stage()
    old = stage.client("r", expiry=60.0)
    new = stage.client("r", clean=False, expiry=60.0)
    new.subscribe("a")
    stage.broker.disconnect_soon(new.session, old.connection)
    publish_all(stage.client("s"), numbers(1, 1), qos=0)
    stage.settle()
    assert new.take_payloads() == numbers(1, 1)


def test_closing_flushes_batches_and_ends_every_connection() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", expiry=60.0)
    reader.subscribe("a")
    away = stage.client("away", expiry=60.0)
    away.drop()
    sender.publish("a", b"x")
    stage.broker.stop()
    assert stage.broker.is_drained
    stage.broker.close()
    assert reader.take_payloads() == [b"x"]
    assert (sender.connection.closed, reader.connection.closed) == ("shutting-down", "shutting-down")
    assert away.connection.closed is None


def test_a_server_that_stops_takes_nothing_new_and_delivers_what_it_took() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.pause()
    sender.publish("a", b"taken")
    stage.broker.stop()
    with pytest.raises(ShuttingDown):
        sender.publish("a", b"refused")
    with pytest.raises(ShuttingDown):
        stage.client("new")
    assert not stage.broker.is_drained
    reader.unpause()
    assert stage.broker.is_drained
    assert reader.take_payloads() == [b"taken"]


def test_what_could_not_leave_before_the_end_is_in_the_ledger() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.pause()
    sender.publish("a", b"x")
    stage.broker.stop()
    stage.broker.close()
    assert stage.losses("r") == [("a", 1, 1, "disconnected")]


# Work that is left to later turns


def spend_turn(stage: Stage) -> None:
    """Leave no time for background work before `begin_turn`."""
    stage.node.background._ends_at = float("-inf")


def begin_turn(stage: Stage) -> None:
    stage.node.background._begin_turn()
    stage.settle()


def test_a_client_that_is_back_before_it_was_detached_gets_everything_once() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", expiry=60.0, window=10)
    reader.subscribe("a", 1)
    publish_all(sender, numbers(1, 300))
    stage.settle()
    spend_turn(stage)
    reader.drop()
    publish_all(sender, numbers(301, 310))
    stage.broker.flush()
    again = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    publish_all(sender, numbers(311, 320))
    begin_turn(stage)
    assert again.take_payloads() == numbers(1, 320)
    assert stage.losses() == []
    counters = stage.broker.counters
    assert (counters.connections, counters.disconnections, counters.takeovers) == (3, 1, 0)


def test_a_disconnection_that_is_reported_twice_counts_once() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.pause()
    publish_all(sender, numbers(1, 300), qos=0)
    stage.broker.flush()
    spend_turn(stage)
    stage.node.drops._unrecorded_bytes += MOST_UNRECORDED_BYTES  # much else is to be recorded
    reader.drop()
    stage.node.drops._unrecorded_bytes -= MOST_UNRECORDED_BYTES
    reader.drop()
    begin_turn(stage)
    assert stage.losses() == [("a", 1, 300, "disconnected")]
    assert stage.broker.counters.disconnections == 1


def test_a_new_session_is_not_mixed_up_with_one_whose_filters_are_still_being_removed() -> None:
    stage = Stage()
    sender, old = stage.client("s"), stage.client("r", expiry=60.0)
    for number in range(200):
        old.subscribe(f"a/{number}", 1)
    old.drop()
    publish_all(sender, numbers(1, 3), "a/7")
    stage.settle()
    spend_turn(stage)
    new = stage.client("r")
    new.subscribe("a/7", 1)
    publish_all(sender, numbers(4, 5), "a/7")
    stage.broker.flush()
    begin_turn(stage)
    publish_all(sender, numbers(6, 7), "a/7")
    stage.settle()
    assert new.take_payloads() == numbers(4, 7)
    assert stage.losses() == [("a/7", 1, 3, "session-ended")]
    counters = stage.broker.counters
    assert counters.subscriptions_added - counters.subscriptions_removed == 1
    assert stage.broker.filter_count == 1


def test_queue_of_a_group_whose_last_member_ended_is_in_the_ledger_when_the_server_stops() -> None:
    stage = Stage()
    sender, member = stage.client("s"), stage.client("r", expiry=60.0)
    member.subscribe("$share/g/a", 1)
    member.drop()
    publish_all(sender, numbers(1, 3))
    stage.settle()
    spend_turn(stage)
    stage.client("r")
    stage.broker.stop()
    stage.broker.close()
    assert stage.losses() == [("a", 1, 3, "session-ended")]


def test_drops_that_were_not_published_yet_reach_the_log_when_the_server_stops() -> None:
    stage = Stage(CoreSettings(log=LogSettings(capture=("$penstock/drops",))))
    lost = DROPS_A_MESSAGE + 10
    for number in range(lost):
        stage.broker.ledger.add_range((f"t/{number}", 1, 1), "r", Reason.OUTBOX_FULL)
    spend_turn(stage)
    stage.broker.reap()
    take_drops = stage.broker._reaping._jobs[-2]
    take_drops()
    stage.broker.ledger.add_range(("last", 1, 1), "r", Reason.OUTBOX_FULL)
    stage.broker.stop()
    stage.broker.close()
    stage.broker.flush()
    assert len(drops_in_the_log(stage)) == lost + 1
