"""A broker on stores that another one has used before: sessions, and what was on its way to them or owed."""

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.durability import recorder
from penstock.core.settings import CoreSettings, LogSettings, OutboxSettings, TopicRule
from penstock.model import Policy
from tests.support.broker import Client, Stage
from tests.support.clock import ManualClock
from tests.support.disk import Disk
from tests.support.encodings import PlainEncoding

LASTING = 3_600.0
EVERYTHING = CoreSettings(log=LogSettings(capture=("#",)))


def connect(stage: Stage, name: str = "r", **others: object) -> Client:
    """A client that comes back to its session, or begins one."""
    client = stage.client(name, clean=False, **{"expiry": LASTING, **others})  # type: ignore[arg-type]
    stage.settle()
    return client


def subscribe(stage: Stage, name: str = "r", filter: str = "a/#", qos: int = 1, **others: object) -> Client:
    client = connect(stage, name, **others)
    client.subscribe(filter, qos)
    stage.settle()
    return client


def publish(stage: Stage, *payloads: bytes, topic: str = "a/b", qos: int = 1) -> None:
    sender = stage.client("s")
    for payload in payloads:
        sender.publish(topic, payload, qos=qos)
    stage.settle()


def restart(disk: Disk, settings: CoreSettings | None = None, clock: ManualClock | None = None) -> Stage:
    """Kill the server and start it again."""
    disk.crash()
    disk.is_stuck = False
    return Stage(settings, disk=disk, clock=clock)


@pytest.fixture
def disk() -> Disk:
    return Disk()


# Sessions


def test_a_session_comes_back_absent_and_is_owed_until_its_client_returns(disk: Disk) -> None:
    subscribe(Stage(disk=disk))
    after = restart(disk)
    publish(after, b"while away")
    client = connect(after)
    assert client.is_known
    assert client.take_payloads() == [b"while away"]
    publish(after, b"live")
    assert client.take_payloads() == [b"live"]


def test_a_session_that_was_not_committed_does_not_come_back(disk: Disk) -> None:
    before = Stage(disk=disk)
    disk.is_stuck = True
    subscribe(before)
    assert not connect(restart(disk)).is_known


def test_a_session_that_ended_does_not_come_back(disk: Disk) -> None:
    before = Stage(disk=disk)
    connect(before, "gone")
    assert list(before.state.scan("sessions"))
    before.client("gone", clean=True)
    before.settle()
    assert not connect(restart(disk), "gone").is_known


def test_a_client_that_began_anew_does_not_get_what_was_on_its_way_to_its_earlier_session(disk: Disk) -> None:
    before = Stage(disk=disk)
    old = subscribe(before, qos=2)
    before.broker.begin_qos2(old.session, 7, None)
    publish(before, b"1", b"2", qos=2)
    old.receive(1)
    old.drop()
    publish(before, b"3", qos=2)
    new = before.client("r", clean=True, expiry=LASTING)
    new.subscribe("a/#", 2)
    before.settle()
    publish(before, b"4", qos=2)
    after = connect(restart(disk))
    assert after.take_payloads() == [b"4"]
    assert (list(after.session.inflight.entries), after.session.received) == ([1], None)  # type: ignore


def test_a_session_that_was_prolonged_by_its_last_connection_is_kept_for_as_long(disk: Disk) -> None:
    clock = ManualClock()
    before = Stage(disk=disk, clock=clock)
    connect(before, expiry=10.0).drop()
    connect(before, expiry=100.0)
    after = restart(disk, clock=clock)
    after.advance(99.0)
    assert "r" in after.broker.sessions
    after.advance(1.0)
    assert "r" not in after.broker.sessions
    assert restart(disk, clock=clock).broker.sessions == {}


def test_the_time_of_an_absent_session_runs_on_while_the_server_is_down(disk: Disk) -> None:
    clock = ManualClock()
    before = Stage(disk=disk, clock=clock)
    connect(before, expiry=100.0).drop()
    before.settle()
    clock.advance(60.0)
    after = restart(disk, clock=clock)
    after.advance(39.0)
    assert "r" in after.broker.sessions
    after.advance(1.0)
    assert "r" not in after.broker.sessions


def test_a_session_whose_time_was_up_while_the_server_was_down_ends_after_the_start(disk: Disk) -> None:
    clock = ManualClock()
    before = Stage(disk=disk, clock=clock)
    connect(before, expiry=100.0).drop()
    before.settle()
    clock.advance(1_000.0)
    after = restart(disk, clock=clock)
    after.advance(0.0)
    assert after.broker.sessions == {}


def test_a_session_that_was_connected_is_away_from_the_first_start_on(disk: Disk) -> None:
    clock = ManualClock()
    connect(Stage(disk=disk, clock=clock), expiry=100.0)
    for _ in range(3):
        after = restart(disk, clock=clock)
        after.advance(30.0)
    assert "r" in after.broker.sessions
    after = restart(disk, clock=clock)
    after.advance(10.0)
    assert "r" not in after.broker.sessions


def test_a_wall_clock_that_was_set_back_ends_no_session_and_keeps_none_for_longer_than_its_time(
    disk: Disk,
) -> None:
    clock = ManualClock()
    before = Stage(disk=disk, clock=clock)
    connect(before, expiry=100.0).drop()
    before.settle()
    clock.jump(-3_600)
    after = restart(disk, clock=clock)
    after.advance(99.0)
    assert "r" in after.broker.sessions
    clock.jump(7_200)
    after.advance(0.5)
    assert "r" in after.broker.sessions
    after.advance(0.5)
    assert "r" not in after.broker.sessions


# Subscriptions


def test_subscriptions_come_back_as_they_were_asked_for(disk: Disk) -> None:
    before = Stage(disk=disk)
    reader = connect(before)
    reader.subscribe("a/#", 2, no_local=True, identifier=7, policy=Policy.DROP_OLDEST)
    reader.subscribe("b", 1)
    reader.subscribe("c", 0)
    before.settle()
    reader.unsubscribe("b")
    before.settle()
    subscriptions = restart(disk).broker.sessions["r"].subscriptions
    wanted = [(each.filter, each.options, each.policy) for each in subscriptions.values()]
    expected = [(each.filter, each.options, each.policy) for each in reader.session.subscriptions.values()]
    assert wanted == expected
    assert [filter for filter, _, _ in wanted] == ["a/#", "c"]


def test_a_filter_that_was_subscribed_later_is_not_owed_what_came_before(disk: Disk) -> None:
    before = Stage(EVERYTHING, disk=disk)
    reader = subscribe(before, window=1)
    publish(before, b"a1", b"a2")
    publish(before, b"b1", topic="b")
    reader.subscribe("b", 1)
    before.settle()
    publish(before, b"b2", topic="b")
    publish(before, b"a3")
    assert connect(restart(disk)).take_payloads() == [b"a1", b"a2", b"b2", b"a3"]


def test_a_filter_that_was_at_qos_0_is_not_owed_what_came_then(disk: Disk) -> None:
    before = Stage(EVERYTHING, disk=disk)
    reader = subscribe(before, window=1)
    reader.subscribe("b", 0)
    before.settle()
    publish(before, b"a1", b"a2")
    publish(before, b"b1", topic="b")
    reader.subscribe("b", 1)
    before.settle()
    publish(before, b"b2", topic="b")
    assert connect(restart(disk)).take_payloads() == [b"a1", b"a2", b"b2"]


def test_what_was_owed_by_a_filter_that_was_left_is_recorded_when_the_session_is_back(disk: Disk) -> None:
    before = Stage(EVERYTHING, disk=disk)
    reader = subscribe(before, filter="a", window=1)
    reader.subscribe("b", 1)
    publish(before, b"a1", b"a2", topic="a")
    publish(before, b"b1", b"b2", topic="b")
    reader.unsubscribe("b")
    before.settle()
    publish(before, b"b3", topic="b")
    publish(before, b"a3", topic="a")
    after = restart(disk)
    assert connect(after).take_payloads() == [b"a1", b"a2", b"a3"]
    assert after.losses() == [("b", 1, 2, "session-ended")]


def test_what_was_owed_by_a_filter_that_was_lowered_to_qos_0_comes_at_qos_0(disk: Disk) -> None:
    before = Stage(EVERYTHING, disk=disk)
    reader = subscribe(before, filter="a", window=1)
    reader.subscribe("b", 1)
    publish(before, b"a1", b"a2", topic="a")
    publish(before, b"b1", b"b2", topic="b")
    reader.subscribe("b", 0)
    before.settle()
    publish(before, b"b3", topic="b")
    publish(before, b"a3", topic="a")
    taken = connect(restart(disk)).take()
    assert [(each.payload, each.qos) for each in taken] == [
        (b"a1", 1),
        (b"a2", 1),
        (b"b1", 0),
        (b"b2", 0),
        (b"a3", 1),
    ]


def test_a_filter_that_was_left_and_asked_for_again_is_owed_all_but_what_came_between(disk: Disk) -> None:
    before = Stage(EVERYTHING, disk=disk)
    reader = subscribe(before, filter="a", window=1)
    publish(before, b"a1", b"a2", topic="a")
    for payload in (b"1", b"2", b"3"):
        reader.subscribe("b/#", 1)
        reader.subscribe("b/+", 1)
        publish(before, b"wanted " + payload, topic="b/1")
        reader.unsubscribe("b/#")
        reader.unsubscribe("b/+")
        publish(before, b"unwanted", topic="b/1")
    reader.subscribe("b/1", 1)
    publish(before, b"wanted 4", topic="b/1")
    after = connect(restart(disk))
    assert after.take_payloads() == [b"a1", b"a2", b"wanted 1", b"wanted 2", b"wanted 3", b"wanted 4"]


def test_filters_are_not_remembered_that_nothing_is_owed_by(disk: Disk) -> None:
    stage = Stage(EVERYTHING, disk=disk)
    reader = subscribe(stage, filter="a", window=2)
    publish(stage, b"1", topic="a")
    reader.unsubscribe("a")
    assert reader.session.past_subscriptions == ()
    publish(stage, b"2", topic="a")
    reader.subscribe("a", 1)
    publish(stage, b"3", b"4", topic="a")
    reader.subscribe("b", 1)
    reader.unsubscribe("b")
    assert reader.session.past_subscriptions == ()
    reader.unsubscribe("a")
    assert [each.filter for each in reader.session.past_subscriptions] == ["a"]  # type: ignore[var-annotated]
    assert reader.take_and_acknowledge() == [b"1", b"3"]
    stage.settle()
    assert reader.take_and_acknowledge() == [b"4"]
    reader.subscribe("a", 1)
    publish(stage, *[b"%d" % number for number in range(5, 9)], topic="a")
    reader.unsubscribe("a")
    assert len(reader.session.past_subscriptions) == 1


def test_only_so_many_filters_are_remembered(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOST_PAST_SUBSCRIPTIONS", 3)
    stage = Stage(EVERYTHING, disk=disk)
    reader = subscribe(stage, filter="a", window=1)
    publish(stage, b"1", b"2", topic="a")
    for name in "bcdef":
        reader.subscribe(name, 1)
        publish(stage, b"x", topic=name)
        reader.unsubscribe(name)
    assert [each.filter for each in reader.session.past_subscriptions] == ["d", "e", "f"]


def test_of_filters_that_overlap_one_at_qos_0_is_owed_nothing(disk: Disk) -> None:
    before = Stage(EVERYTHING, disk=disk)
    reader = subscribe(before, filter="x", window=1)
    reader.subscribe("b/#", 0)
    before.settle()
    publish(before, b"x1", b"x2", topic="x")
    publish(before, b"b1", topic="b/1")
    reader.subscribe("b/1", 1)
    before.settle()
    publish(before, b"b2", topic="b/1")
    assert connect(restart(disk)).take_payloads() == [b"x1", b"x2", b"b2"]


def test_a_filter_that_is_asked_for_again_is_owed_what_it_was_before(disk: Disk) -> None:
    before = Stage(disk=disk)
    reader = subscribe(before)
    reader.drop()
    publish(before, b"1")
    reader = connect(before, window=1)
    publish(before, b"2")
    reader.subscribe("a/#", 2)
    before.settle()
    assert connect(restart(disk)).take_payloads() == [b"1", b"2"]


def test_of_filters_that_overlap_the_first_one_counts_and_one_copy_comes(disk: Disk) -> None:
    before = Stage(disk=disk)
    reader = subscribe(before, window=1)
    publish(before, b"1", b"2")
    reader.subscribe("a/b", 2, no_local=True)
    before.settle()
    publish(before, b"3")
    reader.publish("a/b", b"own", qos=1)
    before.settle()
    assert connect(restart(disk)).take_payloads() == [b"1", b"2", b"3", b"own"]


def test_who_does_not_want_its_own_messages_is_not_owed_them(disk: Disk) -> None:
    before = Stage(disk=disk)
    reader = connect(before, window=1)
    reader.subscribe("a/#", 1, no_local=True)
    before.settle()
    publish(before, b"1", b"2")
    reader.publish("a/b", b"own", qos=1)
    before.settle()
    assert connect(restart(disk)).take_payloads() == [b"1", b"2"]


# What was on its way


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_not_acknowledged_is_sent_again_with_the_same_numbers_in_the_same_order(
    disk: Disk, qos: int
) -> None:
    before = Stage(disk=disk)
    reader = subscribe(before, qos=qos)
    publish(before, b"1", b"2", b"3", b"4", qos=qos)
    sent = {each.number: each.payload for each in reader.take()}
    reader.acknowledge(2)
    before.settle()
    again = connect(restart(disk)).take()
    assert [(each.number, each.payload) for each in again] == [(n, sent[n]) for n in (1, 3, 4)]
    assert all(each.is_again and each.qos == qos for each in again)


def test_numbers_that_are_on_their_way_are_not_given_to_others(disk: Disk) -> None:
    before = Stage(disk=disk)
    subscribe(before)
    publish(before, b"1", b"2")
    after = restart(disk)
    reader = connect(after)
    publish(after, b"3")
    assert [each.number for each in reader.take()] == [1, 2, 3]


def test_what_arrived_at_qos_2_is_not_sent_again_and_holds_its_number(disk: Disk) -> None:
    before = Stage(disk=disk)
    reader = subscribe(before, qos=2)
    publish(before, b"1", b"2", qos=2)
    reader.receive(1)
    before.settle()
    after = restart(disk)
    reader = connect(after)
    assert [(each.number, each.payload) for each in reader.take()] == [(2, b"2")]
    publish(after, b"3", qos=2)
    assert [each.number for each in reader.take()] == [3]
    assert reader.acknowledge(1)


def test_what_came_in_at_qos_2_is_known_until_its_sender_let_go_of_it(disk: Disk) -> None:
    before = Stage(disk=disk)
    sender = connect(before, "s")
    for number in (4, 5):
        before.broker.begin_qos2(sender.session, number, sender.publish("a", b"x", qos=2).ticket)
    before.settle()
    before.broker.end_qos2(sender.session, (4,))
    before.settle()
    session = restart(disk).broker.sessions["s"]
    assert session.received == {5: None}


def test_an_acknowledgement_that_was_not_committed_is_asked_for_again(disk: Disk) -> None:
    before = Stage(disk=disk)
    reader = subscribe(before)
    publish(before, b"1")
    disk.is_stuck = True
    reader.acknowledge(1)
    before.settle()
    assert connect(restart(disk)).take_payloads() == [b"1"]


def test_what_left_at_qos_1_before_its_commit_is_gone_with_it_if_nobody_was_told_otherwise(
    disk: Disk,
) -> None:
    before = Stage(disk=disk)
    reader = subscribe(before)
    disk.is_stuck = True
    told: list[object] = []
    receipt = before.client("s").publish("a/b", b"1", qos=1)
    before.broker.when_committed(receipt.ticket, told.append)
    before.settle()
    assert (reader.take_payloads(), told) == ([b"1"], [])
    after = restart(disk)
    assert connect(after).take() == []
    assert after.broker.ledger.total == 0


def test_a_message_that_is_not_in_the_log_any_more_is_recorded_and_at_qos_2_its_number_held(
    disk: Disk,
) -> None:
    before = Stage(disk=disk)
    reader = subscribe(before, qos=2)
    publish(before, b"1", qos=1)
    publish(before, b"2", qos=2)
    assert len(reader.take()) == 2
    disk.trim(2)
    after = restart(disk)
    assert connect(after).take() == []
    assert after.broker.sessions["r"].inflight.entries == {2: None}  # type: ignore[union-attr]
    assert after.losses("r") == [("", 1, 2, "retention")]


def test_what_has_left_the_log_and_is_still_its_topics_value_is_found_there(disk: Disk) -> None:
    before = Stage(disk=disk)
    reader = subscribe(before, qos=2)
    before.client("s").publish("a/b", b"value", qos=2, retain=True)
    before.settle()
    assert len(reader.take()) == 1
    disk.trim(1)
    after = restart(disk)
    assert connect(after).take_payloads() == [b"value"]
    assert after.losses("r") == []


@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 2)])
def test_what_left_at_one_qos_is_sent_again_at_that_whatever_is_wanted_now(
    disk: Disk, first: int, second: int
) -> None:
    before = Stage(disk=disk)
    reader = subscribe(before, qos=first)
    publish(before, b"1", qos=2)
    reader.subscribe("a/#", second)
    before.settle()
    publish(before, b"2", qos=2)
    again = connect(restart(disk)).take()
    assert [(each.payload, each.qos) for each in again] == [(b"1", first), (b"2", second)]


def test_what_was_on_its_way_comes_although_nobody_subscribes_to_it_any_more(disk: Disk) -> None:
    before = Stage(disk=disk)
    reader = subscribe(before, qos=2)
    publish(before, b"1", qos=2)
    reader.unsubscribe("a/#")
    before.settle()
    again = connect(restart(disk)).take()
    assert [(each.payload, each.qos) for each in again] == [(b"1", 2)]


def test_windows_come_to_the_same_whether_they_were_written_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A crash after each turn of the same story."""

    def tell(turns: int) -> tuple[object, ...]:
        disk = Disk()
        stage = Stage(disk=disk)
        reader, sender = subscribe(stage, qos=2, window=4), connect(stage, "p")
        turn = 0
        while turn < turns:
            for payload, qos in ((b"1", 1), (b"2", 2), (b"3", 2)):
                receipt = sender.publish("a/b", payload, qos=qos)
                stage.broker.begin_qos2(sender.session, turn % 5, receipt.ticket)
            stage.broker.end_qos2(sender.session, ((turn + 2) % 5,))
            for delivered in reader.take()[::2]:
                (reader.receive if delivered.qos == 2 and turn % 3 else reader.acknowledge)(delivered.number)
            for _ in range(3):
                stage.scheduler.turn()
                turn += 1
        sessions = restart(disk).broker.sessions
        inflight, offline_queue = sessions["r"].inflight, sessions["r"].offline_queue
        window = [(n, each and each.run.offset) for n, each in inflight.entries.items()] if inflight else []
        received = sorted(sessions["p"].received or ())
        return window, list(offline_queue.peek(10_000)) if offline_queue else [], received

    never = [tell(turns) for turns in range(0, 60, 3)]
    monkeypatch.setattr(recorder, "MOVES_KEPT", 2)
    monkeypatch.setattr(recorder, "ENTRIES_A_TURN", 3)
    assert [tell(turns) for turns in range(0, 60, 3)] == never
    assert len({str(each) for each in never}) > 10


# What was owed


def test_an_absent_session_is_owed_what_it_was_owed_in_order(disk: Disk) -> None:
    before = Stage(disk=disk)
    subscribe(before).drop()
    publish(before, b"1", b"2")
    publish(before, b"0", topic="other")
    publish(before, b"3", topic="a/c")
    after = restart(disk)
    publish(after, b"4")
    assert connect(after).take_payloads() == [b"1", b"2", b"3", b"4"]


def test_a_slow_session_is_owed_what_waited_for_it(disk: Disk) -> None:
    settings = CoreSettings(outbox=OutboxSettings(messages=2))
    before = Stage(settings, disk=disk)
    reader = subscribe(before)
    publish(before, b"1")
    reader.pause()
    publish(before, b"2", b"3", b"4", b"5")
    again = connect(restart(disk, settings)).take()
    assert [each.payload for each in again] == [b"1", b"2", b"3", b"4", b"5"]
    assert [each.is_again for each in again] == [True, False, False, False, False]


def test_a_session_that_waited_for_a_commit_is_owed_what_was_behind_it(disk: Disk) -> None:
    before = Stage(disk=disk)
    reader = subscribe(before, qos=2)
    publish(before, b"1", qos=2)
    disk.is_stuck = True
    for payload, qos in ((b"2", 2), (b"3", 1), (b"4", 2)):
        publish(before, payload, qos=qos)
    disk.sync()
    assert reader.take_payloads() == [b"1", b"2"]
    assert connect(restart(disk)).take_payloads() == [b"1", b"2", b"3", b"4"]


def test_a_session_that_was_catching_up_goes_on_where_it_was(disk: Disk) -> None:
    before = Stage(disk=disk)
    subscribe(before).drop()
    publish(before, *(b"%d" % number for number in range(9)))
    reader = connect(before, window=3)
    assert reader.take_and_acknowledge() == [b"0", b"1", b"2"]
    before.settle()
    assert reader.take_payloads() == [b"3", b"4", b"5"]
    again = connect(restart(disk)).take()
    assert [each.payload for each in again] == [b"3", b"4", b"5", b"6", b"7", b"8"]
    assert [each.is_again for each in again] == [True, True, True, False, False, False]


def test_what_is_owed_and_cannot_be_read_is_recorded_for_everyone_who_was_owed_it(disk: Disk) -> None:
    before = Stage(disk=disk)
    for name in ("r", "late", "other"):
        subscribe(before, name, "a/#" if name != "other" else "b").drop()
    publish(before, b"1", b"2", b"3")
    publish(before, b"x", topic="b")
    late = connect(before, "late")
    late.take_and_acknowledge()
    before.settle()
    late.drop()
    publish(before, b"4", b"5")
    disk.spoil(2, 5)
    after = restart(disk)
    assert after.losses("r") == [("a/b", 2, 2, "damaged"), ("a/b", 4, 4, "damaged")]
    assert after.losses("late") == [("a/b", 4, 4, "damaged")]
    assert len(after.losses()) == 3
    assert connect(after).take_payloads() == [b"1", b"3", b"5"]


def test_messages_at_qos_0_are_owed_to_nobody(disk: Disk) -> None:
    before = Stage(CoreSettings(log=LogSettings(capture=("#",))), disk=disk)
    subscribe(before).drop()
    publish(before, b"1", qos=1)
    publish(before, b"2", qos=0)
    publish(before, b"3", qos=2)
    assert connect(restart(disk)).take_payloads() == [b"1", b"3"]


def test_what_expired_while_the_server_was_down_is_owed_no_more(disk: Disk) -> None:
    clock = ManualClock()
    before = Stage(disk=disk, clock=clock)
    subscribe(before).drop()
    sender = before.client("s")
    sender.publish("a/b", b"short", qos=1, ttl=10.0)
    sender.publish("a/b", b"long", qos=1, ttl=100.0)
    before.settle()
    clock.advance(20.0)
    (message,) = connect(restart(disk, clock=clock)).take()
    assert (message.payload, message.left) == (b"long", 80)


@pytest.mark.parametrize("capture", [(), ("b/#",), ("#",)])
def test_what_a_lasting_session_wants_is_stored_whatever_else_is(
    disk: Disk, capture: tuple[str, ...]
) -> None:
    settings = CoreSettings(log=LogSettings(capture=capture))
    before = Stage(settings, disk=disk)
    subscribe(before, "away").drop()
    subscribe(before, "shared", "$share/g/a/#").drop()
    publish(before, b"1", b"2")
    publish(before, b"nobody", topic="c")
    assert len(disk.content.runs) == (3 if capture == ("#",) else 2)
    after = restart(disk, settings)
    assert connect(after, "away").take_payloads() == [b"1", b"2"]
    assert connect(after, "shared").take_payloads() == [b"1", b"2"]


def test_what_is_stored_is_not_gathered_into_batches_that_a_crash_would_take(disk: Disk) -> None:
    rule = TopicRule(filter="a/#", batch_size=100, batch_timeout_ms=10_000)
    before = Stage(CoreSettings(topics=(rule,)), disk=disk)
    reader = subscribe(before)
    publish(before, b"1", qos=0)
    assert reader.take() == []
    publish(before, b"2", qos=1)
    assert reader.take_payloads() == [b"1", b"2"]
    assert connect(restart(disk)).take_payloads() == [b"2"]


def test_a_log_with_more_topics_than_there_may_be_does_not_stop_a_start(disk: Disk) -> None:
    before = Stage(disk=disk)
    subscribe(before).drop()
    for number in range(5):
        publish(before, b"x", topic=f"a/{number}")
        publish(before, b"x", topic=f"b/{number}")
    after = restart(disk, CoreSettings(topic=TopicLimits(max_topics=1)))
    assert len(connect(after).take()) == 5


def test_sequences_and_offsets_go_on_after_the_last_that_was_committed(disk: Disk) -> None:
    before = Stage(CoreSettings(log=LogSettings(capture=("#",))), disk=disk)
    publish(before, b"1", b"2")
    disk.is_stuck = True
    publish(before, b"3")
    run = restart(disk).client("s").publish("a/b", b"4", qos=1).run
    assert (run.sequence, run.offset) == (3, 3)


def test_a_form_of_the_door_is_made_of_what_was_asked_for(disk: Disk) -> None:
    before = Stage(disk=disk)
    reader = connect(before)
    reader.subscribe("a/#", 1, identifier=3)
    reader.subscribe("a/+", 2, identifier=4)
    before.settle()
    publish(before, b"1", qos=2)
    after = restart(disk)
    (message,) = connect(after).take()
    assert (sorted(message.identifiers), message.qos) == ([3, 4], 2)
    encodings = [each.encoding for each in after.broker.sessions["r"].subscriptions.values()]
    assert encodings == [PlainEncoding(qos=1, identifiers=(3,)), PlainEncoding(qos=2, identifiers=(4,))]
