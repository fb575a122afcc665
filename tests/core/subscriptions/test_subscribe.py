"""Subscriptions: retained values, overlapping filters, no local, shared groups."""

from itertools import chain
from pathlib import Path

import pytest

from penstock.core.access.file_access import FileAccess
from penstock.core.delivery.drain import CHUNK_BYTES, TURN_STEPS
from penstock.core.settings import CoreSettings, OutboxSettings, RetainedSettings, SessionSettings, TopicRule
from penstock.core.topics.retained import VAIN_NODES
from penstock.errors import InvalidFilter, NotAuthorized, QuotaExceeded
from penstock.model import Policy
from tests.support.broker import Client, Stage, as_tagged
from tests.support.disk import Disk
from tests.support.encodings import Delivered


def retained_of(taken: list[Delivered]) -> list[tuple[str, bytes]]:
    return sorted((delivered.topic, delivered.payload) for delivered in taken if delivered.is_retained)


def numbers(first: int, last: int) -> list[bytes]:
    return [f"{number:03}".encode() for number in range(first, last + 1)]


# Filters


@pytest.mark.parametrize("filter", ["", "a/#/b", "a+", "$share//a", "$share/g", "$share/g/", "a\0"])
def test_a_filter_that_is_no_filter_is_refused_and_nothing_changes(filter: str) -> None:
    stage = Stage()
    reader = stage.client("r")
    with pytest.raises(InvalidFilter):
        reader.subscribe(filter)
    assert reader.session.subscriptions == {}
    assert stage.broker.filter_count == 0


def test_a_forbidden_filter_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth open/#\n")
    stage = Stage(access=FileAccess.load(None, rules, allow_anonymous=True))
    reader = stage.client("r")
    for filter in ("#", "secret", "$share/g/secret"):
        with pytest.raises(NotAuthorized):
            reader.subscribe(filter)
    reader.subscribe("$share/g/open/+")
    assert list(reader.session.subscriptions) == ["$share/g/open/+"]


def test_a_session_may_have_only_so_many_subscriptions() -> None:
    stage = Stage(CoreSettings(sessions=SessionSettings(max_subscriptions=2)))
    reader = stage.client("r")
    reader.subscribe("a")
    reader.subscribe("b")
    with pytest.raises(QuotaExceeded):
        reader.subscribe("c")
    reader.subscribe("b", 1)  # to replace one is no new one
    assert list(reader.session.subscriptions) == ["a", "b"]


def test_unsubscribing_ends_the_deliveries_of_that_filter_only() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.subscribe("b")
    assert reader.unsubscribe("a")
    assert not reader.unsubscribe("a")
    sender.publish("a", b"x")
    sender.publish("b", b"y")
    stage.settle()
    assert reader.take_payloads() == [b"y"]


def test_a_filter_nobody_wants_any_more_is_forgotten() -> None:
    stage = Stage()
    one, other = stage.client("one"), stage.client("other")
    one.subscribe("a/+/b")
    other.subscribe("a/+/b")
    one.unsubscribe("a/+/b")
    assert stage.broker.filter_count == 1
    other.drop()
    assert stage.broker.filter_count == 0


def test_a_subscription_made_again_replaces_the_old_one() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", 0, identifier=1)
    reader.subscribe("a", 1, identifier=2)
    sender.publish("a", b"x", qos=1)
    stage.settle()
    assert [(d.qos, d.identifiers) for d in reader.take()] == [(1, (2,))]


# The seam between before and after


def test_who_subscribes_gets_nothing_that_was_published_before_in_the_same_turn() -> None:
    stage = Stage()
    sender, early, late = stage.client("s"), stage.client("early"), stage.client("late")
    early.subscribe("a")
    sender.publish("a", b"before")
    late.subscribe("a")
    sender.publish("a", b"after")
    stage.settle()
    assert early.take_payloads() == [b"before", b"after"]
    assert late.take_payloads() == [b"after"]


def test_a_value_retained_in_the_same_turn_arrives_once_as_retained() -> None:
    stage = Stage()
    sender, early, late = stage.client("s"), stage.client("early"), stage.client("late")
    early.subscribe("a")
    sender.publish("a", b"x", retain=True)
    late.subscribe("a")
    stage.settle()
    assert [(d.payload, d.is_retained) for d in late.take()] == [(b"x", True)]


def test_who_subscribes_gets_nothing_of_a_batch_that_was_gathered_before() -> None:
    stage = Stage(CoreSettings(topics=(TopicRule(filter="a", batch_size=10, batch_timeout_ms=20),)))
    sender, early, late = stage.client("s"), stage.client("early"), stage.client("late")
    early.subscribe("a")
    sender.publish("a", b"before")
    stage.settle()
    late.subscribe("a")
    sender.publish("a", b"after")
    stage.scheduler.advance(0.02)
    assert early.take_payloads() == [b"before", b"after"]
    assert late.take_payloads() == [b"after"]


def test_who_unsubscribes_still_gets_what_was_published_before_in_the_same_turn() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    sender.publish("a", b"before")
    reader.unsubscribe("a")
    sender.publish("a", b"after")
    stage.settle()
    assert reader.take_payloads() == [b"before"]


# Overlapping filters


def test_overlapping_filters_give_one_copy_at_the_highest_qos() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a/b", 0, identifier=1)
    reader.subscribe("a/+", 2, identifier=2)
    reader.subscribe("a/#", 1, identifier=3)
    sender.publish("a/b", b"x", qos=2)
    stage.settle()
    (delivered,) = reader.take()
    assert (delivered.qos, sorted(delivered.identifiers)) == (2, [1, 2, 3])


def test_overlapping_is_decided_for_each_session() -> None:
    stage = Stage()
    sender, both, one, other = (stage.client(name) for name in ("s", "both", "one", "other"))
    both.subscribe("a/b")
    both.subscribe("#")
    one.subscribe("a/b")
    other.subscribe("#")
    for topic in ("a/b", "c"):
        sender.publish(topic, b"x")
    stage.settle()
    assert [d.topic for d in both.take()] == ["a/b", "c"]
    assert [d.topic for d in one.take()] == ["a/b"]
    assert [d.topic for d in other.take()] == ["a/b", "c"]


def test_overlapping_ends_with_the_second_filter() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", identifier=1)
    reader.subscribe("+", identifier=2)
    reader.unsubscribe("+")
    sender.publish("a", b"x")
    stage.settle()
    assert [d.identifiers for d in reader.take()] == [(1,)]


# No Local


@pytest.mark.parametrize("qos", [0, 1])
def test_no_local_keeps_a_client_from_its_own_messages(qos: int) -> None:
    stage = Stage()
    one, other = stage.client("one"), stage.client("other")
    for client in (one, other):
        client.subscribe("a", qos, no_local=True)
    one.publish("a", b"of one", qos=qos)
    other.publish("a", b"of other", qos=qos)
    one.publish("a", b"of one again", qos=qos)
    stage.settle()
    assert one.take_payloads() == [b"of other"]
    assert other.take_payloads() == [b"of one", b"of one again"]
    assert stage.broker.ledger.total == 0


def test_no_local_holds_for_retained_values_too() -> None:
    stage = Stage()
    one, other = stage.client("one"), stage.client("other")
    one.publish("a/own", b"x", retain=True)
    other.publish("a/other", b"y", retain=True)
    one.subscribe("a/#", no_local=True)
    stage.settle()
    assert retained_of(one.take()) == [("a/other", b"y")]


def test_a_second_filter_without_no_local_gives_a_client_its_own_messages_back() -> None:
    stage = Stage()
    client = stage.client("c")
    client.subscribe("a", no_local=True)
    client.subscribe("+")
    client.publish("a", b"x")
    stage.settle()
    assert client.take_payloads() == [b"x"]


# Retained values


def test_a_retained_value_is_given_to_who_comes_later() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    sender.publish("a", b"old", retain=True)
    sender.publish("a", b"new", retain=True)
    sender.publish("a", b"not kept")
    stage.settle()
    reader.subscribe("a")
    stage.settle()
    (delivered,) = reader.take()
    assert (delivered.payload, delivered.is_retained, delivered.sequence) == (b"new", True, 2)


def test_a_retained_run_keeps_its_last_message() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    sender.publish("a", b"1", b"2", b"3", retain=True)
    reader.subscribe("a")
    stage.settle()
    assert [(d.payload, d.sequence) for d in reader.take()] == [(b"3", 3)]


def test_who_is_subscribed_gets_a_retained_publish_as_a_live_message() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    sender.publish("a", b"x", retain=True)
    stage.settle()
    assert [d.is_retained for d in reader.take()] == [False]


def test_an_empty_retained_payload_deletes_the_value_and_is_delivered() -> None:
    stage = Stage(disk=Disk())
    sender, reader, late = stage.client("s"), stage.client("r"), stage.client("l")
    reader.subscribe("a")
    sender.publish("a", b"x", retain=True)
    sender.publish("a", b"", retain=True)
    stage.settle()
    late.subscribe("a")
    stage.settle()
    assert reader.take_payloads() == [b"x", b""]
    assert late.take() == []
    assert len(stage.broker.retained) == 0
    assert list(stage.state.scan("retained")) == []


def test_a_retained_value_is_given_out_only_while_it_lives() -> None:
    stage = Stage()
    sender, early, late = stage.client("s"), stage.client("early"), stage.client("late")
    sender.publish("a", b"x", retain=True, ttl=10.0)
    stage.clock.advance(4.0)
    early.subscribe("a")
    stage.settle()
    assert [d.left for d in early.take()] == [6]
    stage.clock.advance(6.0)  # not reaped yet
    late.subscribe("a")
    stage.settle()
    assert late.take() == []
    assert len(stage.broker.retained) == 1
    stage.broker.reap()
    assert len(stage.broker.retained) == 0


def test_wildcards_find_the_retained_values_they_match() -> None:
    stage = Stage()
    sender = stage.client("s")
    for topic in ("a", "a/b", "a/b/c", "a/c", "d", "/", "a/"):
        sender.publish(topic, topic.encode(), retain=True)
    stage.broker.publish_server("$SYS/x", b"y", retain=True)
    found = {
        "#": ["/", "a", "a/", "a/b", "a/b/c", "a/c", "d"],
        "+": ["a", "d"],
        "a/#": ["a", "a/", "a/b", "a/b/c", "a/c"],
        "a/+": ["a/", "a/b", "a/c"],
        "+/b/#": ["a/b", "a/b/c"],
        "+/+": ["/", "a/", "a/b", "a/c"],
        "$SYS/#": ["$SYS/x"],
        "e": [],
    }
    for number, (filter, topics) in enumerate(found.items()):
        reader = stage.client(f"r{number}")
        reader.subscribe(filter)
        stage.settle()
        assert [topic for topic, _ in retained_of(reader.take())] == topics, filter


@pytest.mark.parametrize(("handling", "first", "again"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling_decides_when_values_are_sent(handling: int, first: int, again: int) -> None:
    stage = Stage()
    reader = stage.client("r")
    stage.client("s").publish("a", b"x", retain=True)
    reader.subscribe("a", retain_handling=handling)
    stage.settle()
    assert len(reader.take()) == first
    reader.subscribe("a", retain_handling=handling)
    stage.settle()
    assert len(reader.take()) == again


def test_many_retained_values_leave_in_chunks_as_the_socket_takes_them() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", room_bytes=50_000)
    for number in range(500):
        sender.publish(f"a/{number}", b"x" * 1_000, retain=True)
    stage.settle()
    reader.subscribe("a/#", 1)
    got: list[Delivered] = []
    rounds = 0
    while len(got) < 500:
        stage.settle()
        taken = reader.take()
        assert sum(len(d.payload) for d in taken) < 200_000
        assert taken, "it went to sleep before it was done"
        got += taken
        rounds += 1
        assert reader.session.is_paused or len(got) == 500
        reader.unpause()
    assert rounds >= 5
    assert len({d.topic for d in got}) == 500
    stage.settle()
    assert reader.session.is_flowing


def test_a_retained_value_never_comes_after_a_newer_live_one() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", room_bytes=1_000)
    for number in range(200):
        sender.publish(f"a/{number}", b"old" * 500, retain=True)
    stage.settle()
    reader.subscribe("a/#")
    stage.settle()
    for number in range(200):
        sender.publish(f"a/{number}", b"new", retain=True)
    while reader.session.is_paused:
        stage.settle()
        reader.unpause()
    stage.settle()
    seen: dict[str, int] = {}
    for delivered in reader.take():
        assert delivered.sequence > seen.get(delivered.topic, 0), delivered.topic
        seen[delivered.topic] = delivered.sequence
    assert set(seen.values()) == {2}


def test_retained_values_wait_for_the_window_and_stay_before_what_is_live() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", window=2)
    for name in "abcde":
        sender.publish(name, b"old", qos=1, retain=True)
    stage.settle()
    reader.subscribe("+", 1)
    stage.settle()
    sender.publish("e", b"new", qos=1, retain=True)
    stage.settle()
    got: list[tuple[str, bytes]] = []
    for _ in range(4):
        taken = reader.take()
        assert len(taken) <= 2
        got += [(d.topic, d.payload) for d in taken]
        for delivered in taken:
            reader.acknowledge(delivered.number)
        stage.settle()
    assert sorted(got) == [
        ("a", b"old"),
        ("b", b"old"),
        ("c", b"old"),
        ("d", b"old"),
        ("e", b"new"),
        ("e", b"old"),
    ]
    assert got.index(("e", b"old")) < got.index(("e", b"new"))


def test_retained_values_still_to_come_survive_a_broken_connection() -> None:
    stage = Stage()
    sender = stage.client("s")
    for number in range(300):
        sender.publish(f"a/{number}", b"x" * 1_000, qos=1, retain=True)
    stage.settle()
    reader = stage.client("r", expiry=60.0, room_bytes=1_000)
    reader.subscribe("a/#", 1)
    stage.settle()
    first = reader.take()
    assert len(first) < 300
    for delivered in first:
        reader.acknowledge(delivered.number)
    reader.drop()
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    topics = [d.topic for d in first + back.take()]
    assert len(topics) == len(set(topics)) == 300


def retain_many(stage: Stage, count: int) -> None:
    sender = stage.client("s")
    for number in range(count):
        sender.publish(f"d{number}/state", b"x", retain=True)
    stage.settle()


def test_a_search_that_finds_nothing_is_spread_over_many_turns() -> None:
    stage = Stage()
    retain_many(stage, 3_000)
    reader = stage.client("r")
    for number in range(4):
        reader.subscribe(f"+/nothing{number}")
    turns = 0
    while not reader.session.is_flowing:
        assert stage.scheduler.pending, "it went to sleep before it was done"
        stage.scheduler.turn()
        turns += 1
    nodes = 4 * 2 * 3_000  # a branch and a leaf each
    assert nodes / (TURN_STEPS + VAIN_NODES) <= turns <= nodes / TURN_STEPS + 2
    assert reader.take() == []


def test_only_so_many_retained_values_leave_in_one_turn_however_small() -> None:
    stage = Stage()
    retain_many(stage, 3_000)
    reader = stage.client("r")
    reader.subscribe("#")
    got = 0
    while not reader.session.is_flowing:
        stage.scheduler.turn()
        taken = len(reader.take())
        assert taken <= TURN_STEPS
        got += taken
    assert got == 3_000


def test_live_messages_pass_while_retained_values_are_still_looked_for() -> None:
    stage = Stage()
    retain_many(stage, 3_000)
    reader, sender = stage.client("r"), stage.client("t")
    reader.subscribe("live")
    reader.subscribe("+/nothing")
    stage.scheduler.turn()
    stage.scheduler.turn()
    sender.publish("live", b"now")
    stage.scheduler.turn()
    stage.scheduler.turn()
    assert reader.take_payloads() == [b"now"]
    assert not reader.session.is_flowing


def test_unsubscribing_cancels_the_retained_values_still_to_come() -> None:
    stage = Stage()
    retain_many(stage, 2_000)
    stage.client("s").publish("other", b"x", retain=True)
    stage.settle()
    reader = stage.client("r")
    reader.subscribe("+/state")
    reader.subscribe("other")
    stage.scheduler.turn()
    assert 0 < len(reader.take()) <= TURN_STEPS
    reader.unsubscribe("+/state")
    stage.settle()
    assert retained_of(reader.take()) == [("other", b"x")]
    assert reader.session.is_flowing


def test_subscribing_again_starts_the_retained_values_anew_instead_of_once_more() -> None:
    stage = Stage()
    retain_many(stage, 1_000)
    reader = stage.client("r")
    for number in range(1, 1_001):
        reader.subscribe("+/state", identifier=number)
    stage.settle()
    got = reader.take()
    assert len(got) == len({d.topic for d in got}) == 1_000
    assert {d.identifiers for d in got} == {(1_000,)}


@pytest.mark.parametrize("handling", [1, 2])
def test_subscribing_again_without_retained_values_does_not_lose_those_still_to_come(handling: int) -> None:
    stage = Stage()
    retain_many(stage, 1_000)
    reader = stage.client("r")
    reader.subscribe("+/state", identifier=1)
    stage.scheduler.turn()
    first = reader.take()
    assert 0 < len(first) < 1_000
    reader.subscribe("+/state", identifier=2, retain_handling=handling)
    stage.settle()
    rest = reader.take()
    assert len({d.topic for d in first + rest}) == len(first + rest) == 1_000
    assert {d.identifiers for d in rest} == {(2,)}


def test_retained_values_still_to_come_survive_any_number_of_returns_on_another_wire() -> None:
    stage = Stage()
    retain_many(stage, 1_000)
    reader = stage.client("r", expiry=60.0, wire=0)
    reader.subscribe("+/state")
    for number in range(1, 2_001):
        reader.drop()
        reader = stage.client("r", clean=False, expiry=60.0, wire=number % 2, reencode=as_tagged(number))
    stage.settle()
    got = reader.take()
    assert len({d.topic for d in got}) == len(got) == 1_000
    assert {(d.is_retained, d.identifiers) for d in got} == {(True, (2_000,))}


def test_there_may_be_only_so_many_retained_values_and_the_ledger_says_so() -> None:
    stage = Stage(CoreSettings(retained=RetainedSettings(max_messages=1)))
    sender, reader = stage.client("s"), stage.client("r")
    sender.publish("a", b"1", retain=True)
    sender.publish("b", b"2", retain=True)
    sender.publish("a", b"3", retain=True)
    reader.subscribe("+")
    stage.settle()
    assert retained_of(reader.take()) == [("a", b"3")]
    assert stage.losses("s") == [("b", 1, 1, "never-stored")]


def test_shared_subscriptions_get_no_retained_values() -> None:
    stage = Stage()
    stage.client("s").publish("a", b"x", retain=True)
    reader = stage.client("r")
    reader.subscribe("$share/g/a")
    stage.settle()
    assert reader.take() == []


# Shared groups


def members_of(
    stage: Stage, count: int, filter: str = "$share/g/a", qos: int = 1, **options: object
) -> list[Client]:
    members = [stage.client(f"m{number}", **options) for number in range(count)]  # type: ignore[arg-type]
    for member in members:
        member.subscribe(filter, qos)
    return members


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_members_of_a_shared_group_take_turns(qos: int) -> None:
    stage = Stage()
    sender, members = stage.client("s"), members_of(stage, 3, qos=qos)
    for payload in numbers(1, 9):
        sender.publish("a", payload, qos=qos)
    stage.settle()
    taken = [member.take_payloads() for member in members]
    assert [len(payloads) for payloads in taken] == [3, 3, 3]
    assert sorted(chain.from_iterable(taken)) == numbers(1, 9)
    assert all(payloads == sorted(payloads) for payloads in taken)


def test_a_run_is_split_among_the_members_of_a_shared_group() -> None:
    stage = Stage()
    sender, members = stage.client("s"), members_of(stage, 2)
    sender.publish("a", *numbers(1, 4))
    stage.settle()
    assert [member.take_payloads() for member in members] == [
        [b"001", b"003"],
        [b"002", b"004"],
    ]


def test_every_group_and_every_plain_subscriber_gets_each_message() -> None:
    stage = Stage()
    sender, plain = stage.client("s"), stage.client("p")
    plain.subscribe("a")
    one, other = stage.client("one"), stage.client("other")
    one.subscribe("$share/g/a")
    other.subscribe("$share/h/+")
    sender.publish("a", b"x")
    stage.settle()
    assert [client.take_payloads() for client in (plain, one, other)] == [[b"x"]] * 3


def test_members_that_are_away_are_passed_over() -> None:
    stage = Stage()
    sender, members = stage.client("s"), members_of(stage, 3, expiry=60.0)
    members[1].drop()
    for payload in numbers(1, 4):
        sender.publish("a", payload, qos=1)
    stage.settle()
    assert [len(member.take()) for member in (members[0], members[2])] == [2, 2]
    assert not members[1].session.offline_queue


def test_members_that_lag_are_chosen_only_when_nobody_keeps_up() -> None:
    stage = Stage()
    sender, (one, two) = stage.client("s"), members_of(stage, 2)
    one.pause()
    for payload in numbers(1, 3):
        sender.publish("a", payload, qos=1)
    stage.settle()
    assert two.take_payloads() == numbers(1, 3)
    two.pause()
    for payload in numbers(4, 7):
        sender.publish("a", payload, qos=1)
    stage.settle()
    one.unpause()
    two.unpause()
    assert sorted(one.take_payloads() + two.take_payloads()) == numbers(4, 7)


def test_what_a_leaving_member_had_not_acknowledged_goes_to_the_others_first_and_in_order() -> None:
    stage = Stage()
    sender, (one, two) = stage.client("s"), members_of(stage, 2, window=2)
    for payload in numbers(1, 12):
        sender.publish("a", payload, qos=1)
    stage.settle()
    first = [delivered.payload for delivered in one.take()]
    assert first == [b"001", b"003"]
    one.drop()
    for payload in numbers(13, 14):
        sender.publish("a", payload, qos=1)
    stage.settle()
    got: list[bytes] = []
    while taken := two.take_and_acknowledge():
        got += taken
        stage.settle()
    assert got == [b"002", b"004", b"001", b"003", *numbers(5, 14)]  # its own two, then what was given back
    assert stage.broker.ledger.total == 0


def test_qos_2_stays_with_the_member_that_got_it() -> None:
    stage = Stage()
    sender, (one, two) = stage.client("s"), members_of(stage, 2, qos=2, expiry=60.0)
    sender.publish("a", b"001", qos=2)
    sender.publish("a", b"002", qos=2)
    stage.settle()
    assert (one.take_payloads(), two.take_payloads()) == ([b"001"], [b"002"])
    one.drop()
    stage.settle()
    assert two.take() == []
    back = stage.client("m0", clean=False, expiry=60.0)
    assert [(d.payload, d.is_again) for d in back.take()] == [(b"001", True)]


def test_a_group_without_anybody_there_is_owed_and_served_in_order_on_return() -> None:
    stage = Stage()
    sender, members = stage.client("s"), members_of(stage, 2, expiry=60.0)
    for member in members:
        member.drop()
    for payload in numbers(1, 4):
        sender.publish("a", payload, qos=1)
    sender.publish("a", b"at most once")
    stage.settle()
    assert stage.losses("$share/g/a") == [("a", 5, 5, "not-connected")]
    back = stage.client("m1", clean=False, expiry=60.0)
    sender.publish("a", b"005", qos=1)
    stage.settle()
    assert back.take_payloads() == numbers(1, 5)


def test_a_new_member_serves_what_a_group_is_owed() -> None:
    stage = Stage()
    sender, (one,) = stage.client("s"), members_of(stage, 1, expiry=60.0)
    one.drop()
    for payload in numbers(1, 3):
        sender.publish("a", payload, qos=1)
    stage.settle()
    new = stage.client("new")
    new.subscribe("$share/g/a", 1)
    stage.settle()
    assert new.take_payloads() == numbers(1, 3)


def test_what_expired_while_a_group_was_alone_is_recorded_and_not_sent() -> None:
    stage = Stage()
    sender, (one,) = stage.client("s"), members_of(stage, 1, expiry=60.0)
    one.drop()
    sender.publish("a", b"short", qos=1, ttl=2.0)
    sender.publish("a", b"long", qos=1, ttl=20.0)
    stage.settle()
    stage.advance(5.0)
    back = stage.client("m0", clean=False, expiry=60.0)
    stage.settle()
    assert back.take_payloads() == [b"long"]
    assert stage.losses() == [("a", 1, 1, "expired")]


def test_what_a_group_is_owed_has_limits() -> None:
    stage = Stage(CoreSettings(sessions=SessionSettings(owed_messages=3)))
    sender, (one,) = stage.client("s"), members_of(stage, 1, expiry=60.0)
    one.drop()
    for payload in numbers(1, 5):
        sender.publish("a", payload, qos=1)
    stage.settle()
    back = stage.client("m0", clean=False, expiry=60.0)
    stage.settle()
    assert back.take_payloads() == numbers(1, 3)
    assert stage.losses() == [("a", 4, 5, "owed-full")]


def test_when_the_last_member_ends_what_the_group_was_owed_is_recorded() -> None:
    stage = Stage()
    sender, (one,) = stage.client("s"), members_of(stage, 1, expiry=60.0)
    sender.publish("a", b"001", qos=1)
    stage.settle()
    one.drop()
    sender.publish("a", b"002", qos=1)
    stage.settle()
    stage.advance(61.0)
    assert stage.losses("$share/g/a") == [("a", 1, 2, "session-ended")]


def test_a_refusal_discards_and_is_recorded() -> None:
    stage = Stage()
    sender, (one, two) = stage.client("s"), members_of(stage, 2)
    sender.publish("a", b"001", qos=1)
    stage.settle()
    (delivered,) = one.take()
    assert one.refuse(delivered.number)
    assert not one.refuse(delivered.number)
    one.drop()
    stage.settle()
    assert two.take() == []
    assert stage.losses() == [("a", 1, 1, "refused")]


def test_what_a_member_got_before_it_unsubscribed_stays_its_own() -> None:
    stage = Stage()
    sender = stage.client("s")
    one = stage.client("one", expiry=60.0, window=1)
    one.subscribe("$share/g/a", 1)
    sender.publish("a", b"001", qos=1)
    sender.publish("a", b"002", qos=1)
    stage.settle()
    one.unsubscribe("$share/g/a")
    one.drop()
    back = stage.client("one", clean=False, expiry=60.0, window=1)
    stage.settle()
    assert back.take_and_acknowledge() == [b"001"]
    stage.settle()
    assert back.take_and_acknowledge() == []  # the group's, which ended with its last member
    assert stage.losses("$share/g/a") == [("a", 2, 2, "session-ended")]


def test_what_waited_behind_a_full_outbox_is_offered_to_others_too() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=2)))
    sender, (one,) = stage.client("s"), members_of(stage, 1, expiry=60.0)
    one.pause()
    for payload in numbers(1, 5):
        sender.publish("a", payload, qos=1)
    stage.settle()
    two = stage.client("two")
    two.subscribe("$share/g/a", 1)
    one.drop()
    stage.settle()
    assert two.take_payloads() == numbers(1, 5)


def owe_to_the_group(stage: Stage, sender: Client, payloads: list[bytes], ttl: float = 0.0) -> None:
    """Let a group that has one member, which is away, be owed messages."""
    keeper = stage.client("keeper", expiry=1_000.0)
    keeper.subscribe("$share/g/a", 1)
    keeper.drop()
    for payload in payloads:
        sender.publish("a", payload, qos=1, ttl=ttl)
    stage.settle()


def take_all(stage: Stage, member: Client) -> list[bytes]:
    got: list[bytes] = []
    while taken := member.take_and_acknowledge():
        got += taken
        stage.settle()
    return got


def test_what_a_group_is_owed_is_not_thrown_into_a_slow_member() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=10)))
    sender, slow = stage.client("s"), stage.client("slow", window=5)
    owe_to_the_group(stage, sender, numbers(1, 100))
    slow.subscribe("$share/g/a", 1)
    stage.settle()
    assert len(slow.session.outbox or ()) <= 1
    assert take_all(stage, slow) == numbers(1, 100)
    assert stage.broker.ledger.total == 0


def test_a_run_that_a_group_is_owed_is_handed_out_as_far_as_it_goes() -> None:
    stage = Stage()
    sender, slow = stage.client("s"), stage.client("slow", window=2)
    owe_to_the_group(stage, sender, [])
    sender.publish("a", *numbers(1, 9), qos=1)
    slow.subscribe("$share/g/a", 1)
    stage.settle()
    other = stage.client("other")
    other.subscribe("$share/g/a", 1)
    assert other.take_payloads() == numbers(3, 9)
    assert take_all(stage, slow) == numbers(1, 2)


def test_live_messages_stay_behind_what_a_group_is_still_owed() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=2)))
    sender, slow = stage.client("s"), stage.client("slow", window=1)
    owe_to_the_group(stage, sender, numbers(1, 5))
    slow.subscribe("$share/g/a", 1)
    sender.publish("a", b"006", qos=1)
    sender.publish("a", b"007")  # someone is there to get it, and in its place
    sender.publish("a", b"008", qos=1)
    stage.settle()
    assert take_all(stage, slow) == numbers(1, 8)
    assert stage.broker.ledger.total == 0


def test_what_a_group_is_owed_goes_on_when_a_socket_takes_data_again() -> None:
    stage = Stage()
    sender, slow = stage.client("s"), stage.client("slow", room_bytes=CHUNK_BYTES)
    owe_to_the_group(stage, sender, [b"x" * CHUNK_BYTES] * 4)
    slow.subscribe("$share/g/a", 1)
    assert len(slow.take()) == 1
    assert not stage.broker.is_drained
    for left in (2, 1, 0):
        slow.unpause()
        stage.settle()
        assert len(slow.take()) == 1
        assert stage.broker.is_drained == (not left)


def test_what_a_group_is_owed_comes_after_what_the_member_itself_is_owed() -> None:
    stage = Stage()
    sender, keeper = stage.client("s"), stage.client("keeper", expiry=1_000.0)
    keeper.subscribe("$share/g/a", 1)
    keeper.subscribe("b", 1)
    keeper.drop()
    sender.publish("a", b"shared", qos=1)
    sender.publish("b", b"own", qos=1)
    stage.settle()
    back = stage.client("keeper", clean=False, expiry=1_000.0)
    stage.settle()
    assert back.take_payloads() == [b"own", b"shared"]


def test_what_expired_makes_room_in_what_a_group_is_owed() -> None:
    stage = Stage(CoreSettings(sessions=SessionSettings(owed_messages=3)))
    sender = stage.client("s")
    owe_to_the_group(stage, sender, numbers(1, 3), ttl=1.0)
    stage.advance(2.0)
    assert stage.losses("$share/g/a") == [("a", 1, 3, "expired")]
    sender.publish("a", b"004", qos=1)
    stage.settle()
    back = stage.client("keeper", clean=False)
    stage.settle()
    assert back.take_payloads() == [b"004"]
    assert stage.broker.ledger.total == 3


def test_what_a_member_gave_back_expires_in_what_the_group_is_owed() -> None:
    stage = Stage()
    sender, (one,) = stage.client("s"), members_of(stage, 1, expiry=60.0)
    sender.publish("a", b"001", qos=1, ttl=1.0)
    stage.settle()
    one.drop()
    stage.advance(2.0)
    assert stage.losses("$share/g/a") == [("a", 1, 1, "expired")]


# Block and wildcards


def test_block_on_a_filter_that_starts_with_a_wildcard_drops_the_oldest_instead() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=1)))
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("+/b", policy=Policy.BLOCK)
    reader.pause()
    sender.publish("a/b", b"1")
    sender.publish("a/b", b"2")
    stage.settle()
    assert sender.connection.blocks == []
    assert stage.losses("r") == [("a/b", 1, 1, "outbox-full")]


def test_block_on_wildcards_can_be_allowed() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=1, block_wildcards=True)))
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("#", policy=Policy.BLOCK)
    reader.pause()
    sender.publish("a", b"1")
    sender.publish("a", b"2")
    stage.settle()
    assert sender.connection.is_blocked


def test_who_is_connected_and_loses_filters_is_told_of_by_whoever_listens(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth #\n")
    access = FileAccess.load(None, rules, allow_anonymous=True)
    stage = Stage(access=access)
    told: list[tuple[str, list[str]]] = []
    stage.broker.notify_withdrawn(lambda session, filters: told.append((session.client_id, list(filters))))
    for name in ("here", "unharmed", "away"):
        client = stage.client(name, expiry=600)
        for filter in ("open/#",) if name == "unharmed" else ("open/#", "shut/#", "$share/g/shut/a"):
            client.subscribe(filter)
    client.drop()
    rules.write_text("anonymous\nboth open/#\n")
    access.reload()
    stage.broker.recheck_rights()
    assert told == [("here", ["shut/#", "$share/g/shut/a"])]
    stage.broker.recheck_rights()
    assert len(told) == 1


def test_what_waits_by_filters_that_were_left_is_forgotten_in_one_go() -> None:
    stage = Stage()
    reader, sender = stage.client("r"), stage.client("s")
    filters = ("a", "t/#", "+/x", "b")
    for filter in filters:
        reader.subscribe(filter)
    reader.pause()
    for topic in ("a", "t/1", "t/x", "b", "u/x"):
        sender.publish(topic, topic.encode())
    stage.settle()
    left = ("a", "t/#", "b")
    for filter in left:
        reader.unsubscribe(filter)
    stage.broker.drop_queued(reader.session, left)
    reader.unpause()
    assert reader.take_payloads() == [b"t/x", b"u/x"]
    assert sorted(topic for topic, *_ in stage.losses("r")) == ["a", "b", "t/1"]
