"""Callers: publishers that come with a request and have no connection."""

from collections.abc import Callable
from functools import partial

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.access.access import OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.publishing.request_senders import CALLERS, NOTES, RequestSenders
from penstock.core.sessions.session import Session
from penstock.core.settings import CoreSettings, LogSettings, OutboxSettings
from penstock.errors import InvalidTopic, NotAuthorized, ShuttingDown
from penstock.model import Door, Policy
from penstock.runs import Run
from tests.support.broker import Client, Stage
from tests.support.clock import ManualClock, ManualScheduler
from tests.support.disk import Disk
from tests.support.samples import make_run

TIGHT = CoreSettings(outbox=OutboxSettings(messages=1))


@pytest.fixture
def stage() -> Stage:
    return Stage(TIGHT)


def caller(stage: Stage, client_id: str = "", user: str | None = None, door: Door = Door.WEB) -> Session:
    return stage.broker.request_sender(Identity(user, client_id), door)


def publish(stage: Stage, sender: Session, payload: bytes = b"x", topic: str = "a", qos: int = 1) -> Run:
    run = make_run(topic, payload, qos=qos, door=sender.door)
    stage.broker.publish(run, sender)
    return run


def slow_reader(stage: Stage, client_id: str = "slow", filter: str = "a") -> Client:
    reader = stage.client(client_id)
    reader.subscribe(filter, policy=Policy.BLOCK)
    reader.pause()
    return reader


def waits(stage: Stage, session: Session) -> Callable[[], bool]:
    """Whether somebody who asks now is still waiting; and asks."""
    told: list[bool] = []
    stage.broker.when_unblocked(session, lambda: told.append(True))
    return lambda: not told


# Who they are


def test_a_caller_is_the_same_with_every_request(stage: Stage) -> None:
    assert caller(stage, "c") is caller(stage, "c")


@pytest.mark.parametrize("other", [("d", None, Door.WEB), ("c", "ada", Door.WEB), ("c", None, Door.STREAMS)])
def test_another_client_user_or_door_is_another_caller(stage: Stage, other: tuple[str, str, Door]) -> None:
    assert caller(stage, "c") is not caller(stage, *other)


def test_who_is_held_back_in_one_lane_goes_on_in_the_others(stage: Stage) -> None:
    identity, request_senders = Identity(None, ""), stage.node.request_senders
    held, other = (
        request_senders.of(identity, Door.SIDECAR, "a"),
        request_senders.of(identity, Door.SIDECAR, "b"),
    )
    assert held is request_senders.of(identity, Door.SIDECAR, "a")
    slow_reader(stage)
    publish(stage, held)
    publish(stage, held)
    stage.settle()
    is_waiting, is_other_waiting = waits(stage, held), waits(stage, other)
    assert (is_waiting(), is_other_waiting()) == (True, False)


def test_a_caller_is_no_session_that_others_can_find(stage: Stage) -> None:
    publish(stage, caller(stage, "c"))
    assert "c" not in stage.broker.sessions


def test_only_so_many_callers_are_remembered_and_the_latest_stay(stage: Stage) -> None:
    first, second = caller(stage, "0"), caller(stage, "1")
    for number in range(2, CALLERS):
        caller(stage, str(number))
    assert caller(stage, "0") is first
    caller(stage, "one more")
    assert caller(stage, "0") is first
    assert caller(stage, "1") is not second


def test_messages_of_callers_are_delivered_and_counted_like_others(stage: Stage) -> None:
    reader = stage.client("r")
    reader.subscribe("a")
    run = publish(stage, caller(stage, "c"))
    stage.settle()
    assert reader.take_payloads() == [b"x"]
    assert (run.sequence, run.client_id) == (1, "c")
    assert stage.broker.counters.published == 1


def test_a_client_that_wants_none_of_its_own_gets_those_of_a_caller_with_its_id(stage: Stage) -> None:
    device = stage.client("c")
    device.subscribe("a", no_local=True)
    publish(stage, caller(stage, "c"), b"a caller's")
    device.publish("a", b"its own", qos=1)
    stage.settle()
    assert device.take_payloads() == [b"a caller's"]


def test_it_gets_them_after_a_restart_as_well() -> None:
    disk = Disk()
    stage = Stage(disk=disk)
    device = stage.client("c", clean=False, expiry=3_600.0)
    device.subscribe("a", 1, no_local=True)
    device.publish("a", b"its own", qos=1)
    device.drop()
    publish(stage, caller(stage, "c"), b"a caller's")
    stage.settle()
    disk.crash()
    stage = Stage(disk=disk)
    back = stage.client("c", clean=False, expiry=3_600.0)
    stage.settle()
    assert back.take_payloads() == [b"a caller's"]


# What they may


class Rules(OpenAccess):
    """Everybody may publish until somebody says otherwise."""

    is_shut = False

    def may_publish(self, identity: Identity, topic: str) -> bool:
        return not self.is_shut


def test_rights_are_decided_once_and_again_when_they_change() -> None:
    rules = Rules()
    stage = Stage(access=rules)
    publish(stage, caller(stage))
    rules.is_shut = True
    publish(stage, caller(stage))
    stage.broker.recheck_rights()
    with pytest.raises(NotAuthorized):
        publish(stage, caller(stage))


def test_nothing_is_taken_from_a_caller_when_the_server_stops(stage: Stage) -> None:
    publish(stage, caller(stage))
    stage.broker.stop()
    with pytest.raises(ShuttingDown):
        publish(stage, caller(stage))


def test_a_topic_that_was_forgotten_is_looked_up_again() -> None:
    stage = Stage(CoreSettings(topic=TopicLimits(max_topics=10)))
    publish(stage, caller(stage), topic="old")
    for number in range(9):
        stage.broker.topics.make(f"t/{number}")
    stage.broker.topics["old"].ring = None
    stage.broker.reap()
    assert "old" not in stage.broker.topics
    publish(stage, caller(stage), topic="old")
    assert stage.broker.topics["old"].sequence == 2


# Waiting


def test_whoever_is_not_held_back_goes_on_at_once(stage: Stage) -> None:
    assert not waits(stage, caller(stage))()


def test_a_caller_waits_for_a_slow_subscriber_under_block(stage: Stage) -> None:
    reader, sender = slow_reader(stage), caller(stage)
    for payload in (b"1", b"2"):
        publish(stage, sender, payload)
    stage.settle()
    is_waiting = waits(stage, sender)
    stage.settle()
    assert is_waiting()
    reader.unpause()
    stage.settle()
    assert not is_waiting()
    assert reader.take_payloads() == [b"1", b"2"]


def test_a_caller_waits_no_longer_than_the_block_timeout(stage: Stage) -> None:
    slow_reader(stage)
    sender = caller(stage)
    for payload in (b"1", b"2"):
        publish(stage, sender, payload)
    stage.settle()
    is_waiting = waits(stage, sender)
    stage.advance(4.9)
    assert is_waiting()
    stage.advance(0.2)
    assert not is_waiting()
    assert stage.losses("slow") == [("a", 1, 1, "block-timeout")]


def test_those_who_wait_go_on_in_their_order(stage: Stage) -> None:
    reader, sender, order = slow_reader(stage), caller(stage), list[int]()
    for payload in (b"1", b"2"):
        publish(stage, sender, payload)
    stage.settle()
    for number in range(3):
        stage.broker.when_unblocked(sender, lambda number=number: order.append(number))  # type: ignore[misc]
    reader.unpause()
    stage.settle()
    assert order == [0, 1, 2]


@pytest.mark.parametrize("other", [("c", "ada"), ("d", None)])
def test_other_callers_do_not_wait_with_it(stage: Stage, other: tuple[str, str | None]) -> None:
    slow_reader(stage)
    for payload in (b"1", b"2"):
        publish(stage, caller(stage, "c"), payload)
    publish(stage, caller(stage, *other), topic="elsewhere")
    stage.settle()
    assert waits(stage, caller(stage, "c"))()
    assert not waits(stage, caller(stage, *other))()


def test_a_client_at_another_door_with_the_same_id_does_not_wait_for_it(stage: Stage) -> None:
    slow_reader(stage)
    device = stage.client("c")
    for payload in (b"1", b"2"):
        publish(stage, caller(stage, "c"), payload)
    stage.settle()
    assert waits(stage, caller(stage, "c"))()
    assert not device.connection.is_blocked


def test_a_caller_does_not_wait_for_a_client_at_another_door_with_the_same_id(stage: Stage) -> None:
    slow_reader(stage)
    device = stage.client("c")
    for payload in (b"1", b"2"):
        device.publish("a", payload, qos=1)
    stage.settle()
    assert device.connection.is_blocked
    assert not waits(stage, caller(stage, "c"))()


def test_nobody_waits_for_a_message_whose_publisher_is_not_known_any_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.core.publishing.request_senders.NOTES", 1)
    slow_reader(stage)
    device = stage.client("c")
    for payload in (b"1", b"2"):
        publish(stage, caller(stage, "c"), payload)
    for other in ("d", "e"):
        publish(stage, caller(stage, other), topic="elsewhere")
    stage.settle()
    assert not device.connection.is_blocked
    assert stage.losses("slow") == [("a", 1, 1, "outbox-full")]


def test_a_caller_waits_for_the_subscriber_that_has_its_own_client_id(stage: Stage) -> None:
    slow_reader(stage, "c")
    for payload in (b"1", b"2"):
        publish(stage, caller(stage, "c"), payload)
    stage.settle()
    assert waits(stage, caller(stage, "c"))()


def test_the_right_caller_waits_when_many_publish_in_one_turn(stage: Stage) -> None:
    slow_reader(stage)
    for number, topic in enumerate(["b", "a", "a", "b"]):
        publish(stage, caller(stage, f"c{number}"), topic=topic)
    stage.settle()
    assert [waits(stage, caller(stage, f"c{number}"))() for number in range(4)] == [False, False, True, False]


def test_everyone_goes_on_when_the_server_stops(stage: Stage) -> None:
    slow_reader(stage)
    for payload in (b"1", b"2"):
        publish(stage, caller(stage), payload)
    stage.settle()
    is_waiting = waits(stage, caller(stage))
    stage.broker.stop()
    stage.settle()
    assert not is_waiting()


def hold(stage: Stage, sender: Session) -> None:
    """Publish more than a slow reader takes."""
    for payload in (b"1", b"2"):
        publish(stage, sender, payload)
    stage.settle()
    assert sender.blocked_by


def test_whoever_comes_after_a_caller_was_let_go_does_not_overtake_those_who_waited(stage: Stage) -> None:
    reader, sender, order = slow_reader(stage), caller(stage), list[str]()
    hold(stage, sender)
    stage.broker.when_unblocked(sender, lambda: order.append("waited"))
    stage.broker.when_acknowledgeable(sender, lambda: order.append("answer"))
    reader.unpause()
    stage.broker.when_unblocked(sender, lambda: order.append("came later"))  # in the same turn of the loop
    stage.broker.when_acknowledgeable(sender, lambda: order.append("later answer"))
    assert order == []
    stage.settle()
    assert order == ["answer", "later answer", "waited", "came later"]


def test_those_who_wait_do_not_go_on_if_the_first_of_them_is_held_back_again(stage: Stage) -> None:
    reader, sender, published = slow_reader(stage), caller(stage), list[int]()

    def go_on(number: int) -> None:
        published.append(number)
        publish(stage, sender)

    hold(stage, sender)
    for number in range(200):
        stage.broker.when_unblocked(sender, lambda number=number: go_on(number))  # type: ignore[misc]
    stage.advance(5.0)
    assert published == [0]
    assert reader.session.outbox is not None
    assert len(reader.session.outbox) == 2
    reader.unpause()
    stage.settle()
    assert published == list(range(200))


def test_an_answer_does_not_wait_for_those_who_have_not_published_yet(stage: Stage) -> None:
    slow_reader(stage)
    sender, order = caller(stage), list[str]()

    def go_on(name: str) -> None:
        publish(stage, sender)
        order.append(f"{name} publishes")
        answer = partial(order.append, f"{name} is answered")
        stage.broker.when_committed(None, lambda _: stage.broker.when_acknowledgeable(sender, answer))

    hold(stage, sender)
    for name in ("first", "second"):
        stage.broker.when_unblocked(sender, lambda name=name: go_on(name))  # type: ignore[misc]
    stage.advance(5.0)
    assert order == ["first publishes"]
    stage.advance(5.0)
    assert order == ["first publishes", "first is answered", "second publishes"]


def test_whoever_fails_does_not_keep_the_others_waiting(stage: Stage) -> None:
    reader, sender = slow_reader(stage), caller(stage)
    hold(stage, sender)
    stage.broker.when_unblocked(sender, lambda: publish(stage, sender, topic="+"))  # type: ignore[arg-type]
    is_waiting = waits(stage, sender)
    reader.unpause()
    with pytest.raises(InvalidTopic):
        stage.settle()
    stage.settle()
    assert not is_waiting()


def test_whoever_is_held_back_by_the_last_flush_of_a_server_goes_on_all_the_same(stage: Stage) -> None:
    slow_reader(stage)
    sender, told = caller(stage), list[None]()
    for payload in (b"1", b"2"):
        publish(stage, sender, payload)
    stage.broker.when_committed(
        None, lambda _: stage.broker.when_acknowledgeable(sender, lambda: told.append(None))
    )
    stage.broker.stop()
    stage.settle()
    assert told == [None]


def test_whoever_waits_for_a_commit_when_the_server_stops_is_told_when_it_is_made() -> None:
    disk = Disk()
    stage = Stage(CoreSettings(outbox=TIGHT.outbox, log=LogSettings(capture=("#",))), disk=disk)
    slow_reader(stage)
    stage.settle()
    sender, told = caller(stage), list[None]()
    disk.is_stuck = True
    receipts = [stage.broker.publish_once(make_run("a", b"x", qos=1, door=Door.WEB), sender) for _ in "12"]
    stage.broker.when_committed(
        receipts[1].ticket, lambda _: stage.broker.when_acknowledgeable(sender, lambda: told.append(None))
    )
    stage.settle()
    assert sender.blocked_by
    stage.broker.stop()
    stage.settle()
    assert told == []
    disk.is_stuck = False
    disk.sync()
    stage.settle()
    assert told == [None]


def test_a_caller_that_waits_is_not_forgotten_however_many_come(stage: Stage) -> None:
    reader, sender, order = slow_reader(stage), caller(stage, "c"), list[str]()
    hold(stage, sender)
    stage.broker.when_unblocked(sender, lambda: order.append("waited"))
    for number in range(2 * CALLERS):
        caller(stage, str(number))
    assert caller(stage, "c") is sender
    stage.broker.when_unblocked(sender, lambda: order.append("came later"))
    reader.unpause()
    stage.settle()
    assert order == ["waited", "came later"]
    assert len(list(stage.node.request_senders.sessions())) == CALLERS


def test_all_who_wait_are_remembered_and_forgotten_when_they_are_free(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.core.publishing.request_senders.CALLERS", 2)
    reader, held = slow_reader(stage), list[Session]()
    for name in "abc":
        held.append(caller(stage, name))
        hold(stage, held[-1])
    assert [caller(stage, name) for name in "abc"] == held
    reader.unpause()
    stage.settle()
    newest = caller(stage, "d")
    assert list(stage.node.request_senders.sessions()) == [held[2], newest]


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_caller_that_was_forgotten_before_it_was_held_back_goes_on_as_well(
    stage: Stage, is_stopping: bool
) -> None:
    reader, sender = slow_reader(stage), caller(stage, "c")
    for payload in (b"1", b"2"):
        publish(stage, sender, payload)
    for number in range(CALLERS):
        caller(stage, str(number))
    assert caller(stage, "c") is not sender
    stage.settle()
    is_waiting = waits(stage, sender)
    assert is_waiting()
    if is_stopping:
        stage.broker.stop()
    else:
        reader.unpause()
    stage.settle()
    assert not is_waiting()


# Notes


@pytest.fixture
def request_senders() -> RequestSenders:
    return RequestSenders(ManualScheduler(ManualClock()))


def test_offsets_lead_to_who_published_them(request_senders: RequestSenders) -> None:
    one, two = (request_senders.of(Identity(None, name), Door.WEB) for name in "12")
    request_senders.note(5, 6, one)
    request_senders.note(7, 7, one)
    request_senders.note(9, 9, two)
    request_senders.note(10, 12, one)
    found = [request_senders.publisher_of(make_run("a", b"", offset=offset)) for offset in range(4, 14)]
    assert found == [None, one, one, one, None, two, one, one, one, None]


def test_only_the_latest_offsets_are_noted(request_senders: RequestSenders) -> None:
    one, two = (request_senders.of(Identity(None, name), Door.WEB) for name in "12")
    for offset in range(1, 5 * NOTES):
        request_senders.note(offset, offset, one if offset % 2 else two)
    assert request_senders.publisher_of(make_run("a", b"", offset=1)) is None
    assert request_senders.publisher_of(make_run("a", b"", offset=4 * NOTES + 1)) is one
    assert request_senders.publisher_of(make_run("a", b"", offset=4 * NOTES + 2)) is two
