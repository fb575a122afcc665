"""Streams of requests and events: filters that come and go, the past, and what is refused."""

from asyncio import gather, sleep

import grpc
import pytest

from penstock.common.cursor import Cursor
from penstock.core.settings import SessionSettings
from penstock.wire.sidecar.messages import penstock as wire
from tests.doors.sidecar.v1.conftest import Build
from tests.doors.sidecar.v1.people import Caller, House, entry

INVALID, EXHAUSTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_stream_begins_with_who_it_is_and_where(house: House, caller: Caller) -> None:
    listener = caller.subscribe()
    await listener.ask(open=wire.Open(client_id="pump\n7"))
    opened = await listener.hear("opened")
    log = house.broker.log
    assert opened.session_id.startswith(f"v1-{log.log_id[:8]}-{log.epoch}-pump7-")
    assert opened.session_id in house.broker.sessions
    assert opened.node_id == house.server.node_id
    await caller.publish_once("a", b"1")
    await listener.add("a", after=opened.cursor)
    assert (await listener.hear("added")).replay_started
    assert await listener.messages(1) == [("a", b"1", 1)]


async def test_stream_need_not_be_opened(caller: Caller) -> None:
    listener = caller.subscribe()
    request_id = await listener.add("a", "b", "a")
    assert "-anonymous-" in (await listener.hear("opened")).session_id
    added = await listener.hear("added")
    assert (added.request_id, list(added.filters), added.replay_started) == (request_id, ["a", "b"], False)


async def test_stream_that_ends_its_requests_at_once_is_open_all_the_same(caller: Caller) -> None:
    listener = caller.subscribe()
    await listener.call.done_writing()
    assert (await listener.hear("opened")).session_id


async def test_events_go_on_when_the_requests_have_ended(caller: Caller) -> None:
    listener = await caller.listen("a")
    await listener.call.done_writing()
    await sleep(0.1)
    await caller.publish_once("a", b"1")
    assert await listener.messages(1) == [("a", b"1", 1)]


async def test_answers_come_in_the_order_of_requests(caller: Caller) -> None:
    listener = caller.subscribe()
    await listener.ask(open=wire.Open())
    asked = [await listener.add(f"t/{number}", last=5) for number in range(20)]
    await listener.hear("opened")
    answers: list[int] = []
    statements: set[int] = set()
    while len(answers) < 20 or len(statements) < 20:
        event = await listener.take()
        if event.WhichOneof("event") == "added":
            answers.append(event.added.request_id)
        else:
            statements.add(event.statement.request_id)
            assert event.statement.request_id in answers
    assert answers == asked
    assert statements == set(asked)


async def test_message_comes_once_however_many_filters_match(caller: Caller) -> None:
    listener = await caller.listen("a/#", "a/b", "+/b")
    await caller.publish_once("a/b", b"1")
    await caller.publish_once("a/b", b"2")
    assert await listener.messages(2) == [("a/b", b"1", 1), ("a/b", b"2", 2)]


async def test_cursor_of_a_delivery_leads_behind_its_last_message(caller: Caller) -> None:
    listener = await caller.listen("a")
    await caller.publish_once("a", b"1", b"22", b"3")
    await listener.messages(3)
    await caller.publish_once("a", b"4")
    other = caller.subscribe()
    await other.add("a", after=listener.cursor)
    await other.hear("opened")
    assert (await other.hear("added")).cursor == listener.cursor
    assert await other.messages(1) == [("a", b"4", 4)]


async def test_replay_ends_with_a_statement_and_goes_over_into_what_is_live(caller: Caller) -> None:
    await caller.publish_once("a", *[b"%d" % number for number in range(50)])
    listener = caller.subscribe()
    request_id = await listener.add("a", "b", last=20)
    await listener.hear("opened")
    await listener.hear("added")
    assert [sequence for _, _, sequence in await listener.messages(20)] == list(range(31, 51))
    assert all(run.is_replay for run in listener.runs)
    statement = await listener.hear("statement")
    assert (statement.request_id, statement.served, len(statement.missing)) == (request_id, 20, 0)
    assert Cursor.decode(statement.next)
    await caller.publish_once("a", b"live")
    assert await listener.messages(1) == [("a", b"live", 51)]
    assert not listener.runs[-1].is_replay


async def test_statement_says_what_is_missing(caller: Caller) -> None:
    listener = caller.subscribe()
    await listener.ask(open=wire.Open())
    before = (await listener.hear("opened")).cursor
    await caller.publish_once("a", *[b"x" * 2_000] * 400)  # far more than a ring keeps
    await listener.add("a", after=before)
    await listener.hear("added")
    first = (await listener.hear("delivery")).runs[0].sequence
    while (event := await listener.take()).WhichOneof("event") == "delivery":
        pass
    missing = event.statement.missing
    assert [(each.topic, each.last, each.reason) for each in missing] == [("a", first - 1, "evicted")]
    assert first > 1


async def test_nothing_is_lost_or_doubled_between_the_past_and_what_is_live(caller: Caller) -> None:
    listener, publisher = caller.subscribe(), caller.publish()

    async def publish() -> None:
        for number in range(60):
            await publisher.send(entry("a", *[b"%d" % number] * 5))

    publishing = gather(publish())
    await sleep(0.05)
    await listener.add("a", last=1)
    await listener.hear("opened")
    await listener.hear("added")
    sequences: list[int] = []
    while not sequences or sequences[-1] < 300:
        event = await listener.take()
        if event.WhichOneof("event") == "delivery":
            for run in event.delivery.runs:
                sequences += range(run.sequence, run.sequence + len(run.payloads))
    assert sequences == list(range(sequences[0], 301))
    await publishing


async def test_retained_values_come_without_a_cursor(caller: Caller) -> None:
    await caller.publish_once("a/1", b"old", b"value", retain=True)
    await caller.publish_once("a/2", b"passing")
    listener = caller.subscribe()
    await listener.add("a/#", receive_retained=True)
    await listener.hear("opened")
    await listener.hear("added")
    delivery = await listener.hear("delivery")
    assert [(run.topic, list(run.payloads), run.is_retained) for run in delivery.runs] == [
        ("a/1", [b"value"], True)
    ]
    assert delivery.cursor == ""
    await caller.publish_once("a/1", b"new")
    assert await listener.messages(1) == [("a/1", b"new", 3)]
    assert not listener.runs[0].is_retained


async def test_retained_value_that_several_filters_match_comes_once(caller: Caller) -> None:
    await caller.publish_once("a/1", b"value", retain=True)
    listener = caller.subscribe()
    await listener.add("a/#", "+/1", "a/1", receive_retained=True)
    await listener.hear("opened")
    await listener.hear("added")
    await caller.publish_once("a/1", b"new")
    assert [payload for _, payload, _ in await listener.messages(2)] == [b"value", b"new"]


async def test_empty_retained_payload_deletes_the_value(caller: Caller) -> None:
    await caller.publish_once("a", b"value", retain=True)
    await caller.publish_once("a", b"", retain=True)
    listener = caller.subscribe()
    await listener.add("a", receive_retained=True)
    await listener.hear("opened")
    await listener.hear("added")
    assert await listener.hears_nothing()


async def test_removed_filter_brings_nothing_more(house: House, caller: Caller) -> None:
    listener = await caller.listen("a", "b")
    request_id = await listener.ask(remove=wire.Remove(filters=["a", "never", "a"]))
    removed = await listener.hear("removed")
    assert (removed.request_id, list(removed.filters)) == (request_id, ["a"])
    await caller.publish_once("a", b"1")
    await caller.publish_once("b", b"2")
    assert await listener.messages(1) == [("b", b"2", 1)]


async def test_what_waits_by_a_removed_filter_never_comes(caller: Caller) -> None:
    listener = await caller.listen("a", "b", credit=1)
    publisher = caller.publish()
    await publisher.send(entry("b", b"0"))
    await publisher.send(entry("a", b"1"), entry("b", b"2"))
    assert await listener.messages(1) == [("b", b"0", 1)]
    await listener.ask(remove=wire.Remove(filters=["a"]))
    await listener.hear("removed")
    await listener.ask(credit=wire.Credit(messages=5))
    assert await listener.messages(1) == [("b", b"2", 2)]


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ({"add": wire.Add(filters=["a/#/b"])}, "invalid-filter"),
        ({"add": wire.Add(filters=["a", ""])}, "invalid-filter"),
        ({"add": wire.Add()}, "invalid-request"),
        ({"add": wire.Add(filters=["a"], after="no cursor")}, "invalid-cursor"),
        ({"add": wire.Add(filters=["a"], after="")}, "invalid-cursor"),
        ({"add": wire.Add(filters=["a"], last=2**32 - 1)}, "invalid-request"),
        ({"add": wire.Add(filters=["a"], last=1, receive_retained=True)}, "invalid-request"),
        ({"add": wire.Add(filters=["$share/g/a"], last=1)}, "invalid-request"),
        ({"add": wire.Add(filters=["1", "2", "3", "4", "5"])}, "quota-exceeded"),
        ({"remove": wire.Remove()}, "invalid-request"),
        ({"open": wire.Open()}, "invalid-request"),
        ({}, "invalid-request"),
    ],
)
async def test_request_that_cannot_be_is_refused_and_the_stream_goes_on(
    build: Build, action: dict[str, object], code: str
) -> None:
    house = await build(sessions=SessionSettings(max_subscriptions=4))
    caller = house.caller()
    listener = await caller.listen("good")
    request_id = await listener.ask(**action)
    refused = await listener.hear("refused")
    assert (refused.request_id, refused.code) == (request_id, code)
    assert refused.text
    await caller.publish_once("good", b"1")
    assert await listener.messages(1) == [("good", b"1", 1)]
    session = next(each for name, each in house.broker.sessions.items() if name.startswith("v1-"))
    assert list(session.subscriptions) == ["good"]


async def test_undecodable_request_ends_the_stream(house: House, caller: Caller) -> None:
    listener = await caller.listen("a")
    await listener.call.write(b"\xff\xff\xff")
    assert await listener.ending() == (INVALID, "invalid-request: not a valid SubscribeRequest")
    await house.is_left()


async def test_unknown_policy_ends_the_stream(caller: Caller) -> None:
    listener = caller.subscribe()
    request = wire.SubscribeRequest(open=wire.Open(policy=99))  # type: ignore[arg-type]
    await listener.call.write(request.SerializeToString())
    assert await listener.ending() == (INVALID, "invalid-request: there is no policy 99")


async def test_client_that_goes_away_leaves_nothing_behind(house: House, caller: Caller) -> None:
    listeners = [await caller.listen(f"a/{number}") for number in range(10)]
    for listener in listeners:
        listener.call.cancel()
    await house.is_left()
    assert not any(house.broker._node.router.match(f"a/{number}") for number in range(10))


async def test_deadline_ends_a_stream(house: House, caller: Caller) -> None:
    listener = caller.subscribe(timeout=1.0)
    await listener.add("a")
    await listener.hear("opened")
    await listener.hear("added")
    assert (await listener.ending())[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    await house.is_left()


async def test_request_with_more_filters_than_one_may_have_is_refused_unread(build: Build) -> None:
    house = await build(sessions=SessionSettings(max_subscriptions=2))
    listener = await house.caller().listen("a", "b")
    for action in ({"add": wire.Add(filters=["a"] * 3)}, {"remove": wire.Remove(filters=["a"] * 3)}):
        asked = await listener.ask(**action)
        refused = await listener.hear("refused")
        assert (refused.request_id, refused.code) == (asked, "quota-exceeded")
    await listener.ask(remove=wire.Remove(filters=["a", "b"]))
    assert list((await listener.hear("removed")).filters) == ["a", "b"]
