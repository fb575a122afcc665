"""What clients of `/ws` say and hear, word for word."""

import json
from typing import Any
from uuid import UUID

import pytest

from penstock.app import Server
from penstock.common.cursor import Cursor
from penstock.core.settings import SessionSettings
from penstock.doors.web.settings import WebSettings
from penstock.doors.web.socket.requests import Subscribe, read_request
from tests.doors.serving import Start
from tests.doors.web.socket.talking import Said, Talker

INVALID_JSON = {"type": "error", "code": "INVALID_JSON", "message": "Message must be valid JSON"}
INVALID_MESSAGE = {
    "type": "error",
    "code": "INVALID_MESSAGE",
    "message": "Message must have a 'type' field",
}
NOT_FOUND = "TOPIC_NOT_FOUND"


@pytest.fixture
def topic(server: Server, name: str) -> str:
    """A topic that was made."""
    server.broker.declare_topic(name)
    return name


def without(said: Said, *keys: str) -> Said:
    return {key: value for key, value in said.items() if key not in keys}


async def test_who_connects_is_told_its_client_id(server: Server) -> None:
    async with Talker(server) as talker, Talker(server) as other:
        assert UUID(talker.client_id).version == 4
        assert talker.client_id != other.client_id


async def test_an_event_has_topic_data_and_id_and_where_it_stands(server: Server, topic: str) -> None:
    async with Talker(server) as talker:
        answer = await talker.ask("subscribe", topic=topic)
        assert without(answer, "cursor") == {
            "type": "ack",
            "request_type": "subscribe",
            "topic": topic,
            "message": f"Subscribed to topic '{topic}'",
        }
        assert await talker.ask("publish", topic=topic, data={"a": [1, None, "ü"]}) == {
            "type": "ack",
            "request_type": "publish",
            "topic": topic,
            "message": "Published to 1 subscriber(s)",
        }
        event = await talker.event()
        assert without(event, "message_id", "cursor") == {
            "type": "event",
            "topic": topic,
            "data": {"a": [1, None, "ü"]},
            "sequence": 1,
        }
        assert UUID(event["message_id"]).version == 4
        assert Cursor.decode(event["cursor"]) == server.broker.history.cursor()


@pytest.mark.parametrize(
    "data", ["text", 0, -1.5, True, None, [], {}, {"deep": [{"er": {}}]}, {"$bytes": "AP8="}, "\u2028 \0 🎉"]
)
async def test_any_json_travels_as_it_is(server: Server, topic: str, data: Any) -> None:
    async with Talker(server) as talker:
        await talker.subscribe(topic)
        await talker.publish(topic, data)
        assert await talker.data(1) == [data]


async def test_everyone_gets_the_same_event(server: Server, topic: str) -> None:
    async with Talker(server) as one, Talker(server) as other:
        for talker in (one, other):
            await talker.subscribe(topic)
        assert (await one.ask("publish", topic=topic, data=1))["message"] == "Published to 2 subscriber(s)"
        assert await one.event() == await other.event()


async def test_a_ping_is_answered(server: Server) -> None:
    async with Talker(server) as talker:
        assert await talker.ask("ping") == {"type": "pong"}
        assert await talker.ask("ping", request_id="7") == {"type": "pong", "request_id": "7"}


async def test_who_unsubscribes_gets_no_more(server: Server, topic: str) -> None:
    async with Talker(server) as talker:
        await talker.subscribe(topic)
        assert await talker.ask("unsubscribe", topic=topic) == {
            "type": "ack",
            "request_type": "unsubscribe",
            "topic": topic,
            "message": f"Unsubscribed from topic '{topic}'",
        }
        assert (await talker.ask("publish", topic=topic, data=1))["message"] == "Published to 0 subscriber(s)"
        assert await talker.ask("unsubscribe", topic=topic) == {
            "type": "error",
            "code": "NOT_SUBSCRIBED",
            "message": f"Not subscribed to topic '{topic}'",
        }


async def test_subscribing_twice_replaces_the_first(server: Server, topic: str) -> None:
    async with Talker(server) as talker:
        await talker.subscribe(topic)
        await talker.subscribe(topic)
        await talker.publish(topic, 1, 2)
        assert await talker.data(2) == [1, 2]


async def test_a_request_id_comes_back_with_the_answer(server: Server, topic: str) -> None:
    async with Talker(server) as talker:
        for request in (
            {"type": "subscribe", "topic": topic},
            {"type": "publish", "topic": topic, "data": 1},
            {"type": "unsubscribe", "topic": topic},
            {"type": "unsubscribe", "topic": topic},
            {"type": "publish", "topic": "nobody made it", "data": 1},
            {"type": "subscribe", "topic": "nobody made it"},
            {"type": "subscribe", "topic": 5},
            {"type": "dance"},
        ):
            await talker.send({**request, "request_id": 17})
            assert (await talker.answer())["request_id"] == 17


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("{", INVALID_JSON),
        ("", INVALID_JSON),
        ('{"type":"ping"} and more', INVALID_JSON),
        ('{"type":"publish","topic":"a","data":NaN}', INVALID_JSON),
        ('{"type":"publish","topic":"a","data":' + "[" * 100_000, INVALID_JSON),
        ("[1]", INVALID_MESSAGE),
        ("17", INVALID_MESSAGE),
        ("null", INVALID_MESSAGE),
        ("{}", INVALID_MESSAGE),
        ('{"topic":"a"}', INVALID_MESSAGE),
    ],
)
async def test_what_is_no_message_is_refused_and_the_connection_kept(
    server: Server, message: str, error: Said
) -> None:
    async with Talker(server) as talker:
        await talker.send(message)
        assert await talker.answer() == error
        assert await talker.ask("ping") == {"type": "pong"}


async def test_a_binary_frame_is_no_message(server: Server) -> None:
    async with Talker(server) as talker:
        await talker.send(b'{"type":"ping"}')
        assert await talker.answer() == {
            "type": "error",
            "code": "INTERNAL",
            "message": "Message must be a text frame",
        }
        assert await talker.ask("ping") == {"type": "pong"}


@pytest.mark.parametrize("type", ["dance", "", 5, None, ["ping"], "event"])
async def test_an_unknown_type_is_named(server: Server, type: Any) -> None:
    async with Talker(server) as talker:
        await talker.send({"type": type})
        answer = await talker.answer()
        assert (answer["type"], answer["code"]) == ("error", "UNKNOWN_MESSAGE_TYPE")
        assert await talker.ask("ping") == {"type": "pong"}


@pytest.mark.parametrize(
    ("request_", "place"),
    [
        ({"type": "subscribe"}, "topic"),
        ({"type": "subscribe", "topic": ""}, "topic"),
        ({"type": "subscribe", "topic": "x" * 256}, "topic"),
        ({"type": "subscribe", "topic": 5}, "topic"),
        ({"type": "subscribe", "topic": "a", "filter": "a"}, "topic"),
        ({"type": "subscribe", "filter": ""}, "filter"),
        ({"type": "subscribe", "topic": "a", "last_n": -1}, "last_n"),
        ({"type": "subscribe", "topic": "a", "last_n": 1001}, "last_n"),
        ({"type": "subscribe", "topic": "a", "last_n": "1001"}, "last_n"),
        ({"type": "subscribe", "topic": "a", "last_n": "-1"}, "last_n"),
        ({"type": "subscribe", "topic": "a", "last_n": "five"}, "last_n"),
        ({"type": "subscribe", "topic": "a", "last_n": ""}, "last_n"),
        ({"type": "subscribe", "topic": "a", "last_n": 1.5}, "last_n"),
        ({"type": "subscribe", "topic": "a", "last_n": 1e300}, "last_n"),
        ({"type": "subscribe", "topic": "a", "last_n": [1]}, "last_n"),
        ({"type": "subscribe", "topic": "a", "last_n": 5, "after": "x"}, "after"),
        ({"type": "subscribe", "topic": "a", "after": 5}, "after"),
        ({"type": "unsubscribe"}, "topic"),
        ({"type": "publish", "topic": "a"}, "data"),
        ({"type": "publish", "data": 1}, "topic"),
        ({"type": "publish", "topic": "", "data": 1}, "topic"),
        ({"type": "publish", "topic": "x" * 256, "data": 1}, "topic"),
        ({"type": "ping", "request_id": ["x"]}, "request_id"),
    ],
)
async def test_a_message_that_says_too_little_or_something_else_is_refused(
    server: Server, request_: Said, place: str
) -> None:
    async with Talker(server) as talker:
        await talker.send(request_)
        answer = await talker.answer()
        assert (answer["code"], answer["message"]) == ("VALIDATION_ERROR", "Invalid message format")
        assert [error["loc"] for error in answer["details"]["errors"]] == [[place]]
        assert await talker.ask("ping") == {"type": "pong"}


async def test_bytes_that_are_no_base64_are_refused(server: Server, topic: str) -> None:
    async with Talker(server) as talker:
        answer = await talker.ask("publish", topic=topic, data={"$bytes": "?"})
        assert answer["code"] == "VALIDATION_ERROR"
        assert answer["details"]["errors"][0]["loc"] == ["data"]


@pytest.mark.parametrize("request_", [{"type": "subscribe"}, {"type": "publish", "data": 1}])
@pytest.mark.parametrize("topic", ["never made", "a/#", "$SYS/none", "a\0b"])
async def test_a_topic_has_to_be_made_first(server: Server, topic: str, request_: Said) -> None:
    async with Talker(server) as talker:
        await talker.send({**request_, "topic": topic})
        answer = await talker.answer()
        assert (answer["code"], answer["message"]) == (NOT_FOUND, f"Topic '{topic}' does not exist")


@pytest.mark.parametrize(("topic", "is_hinted"), [("a/#", True), ("$share/g/a", True), ("never made", False)])
async def test_who_takes_a_filter_for_a_topic_gets_a_hint(
    server: Server, topic: str, is_hinted: bool
) -> None:
    async with Talker(server) as talker:
        answer = await talker.ask("subscribe", topic=topic)
        assert answer["details"].pop("hint", "").startswith("this looks like a filter") is is_hinted
        assert answer["details"] == {"code": "unknown-topic", "topic": topic}


async def test_a_topic_that_another_door_uses_is_there(server: Server, name: str) -> None:
    server.broker.publish_server(name, b"1")
    async with Talker(server) as talker:
        await talker.subscribe(name)


async def test_topics_come_by_themselves_where_that_is_set(start: Start, name: str) -> None:
    server = await start(web=WebSettings(explicit_topics=False))
    async with Talker(server) as talker:
        await talker.subscribe(name)
        await talker.publish(name, 1)
        assert await talker.data(1) == [1]
        for type in ("subscribe", "publish"):
            answer = await talker.ask(type, topic="a/#", data=1)
            assert answer["details"]["code"] == "invalid-topic"
        answer = await talker.ask("subscribe", topic=f"$share/group/{name}")
        assert answer["details"]["code"] == "invalid-topic"
        assert (await talker.ask("subscribe", filter=f"$share/group/{name}"))["type"] == "ack"


async def test_a_filter_reaches_topics_that_come_later(server: Server, name: str) -> None:
    async with Talker(server) as talker:
        answer = await talker.ask("subscribe", filter=f"{name}/#")
        assert without(answer, "cursor") == {
            "type": "ack",
            "request_type": "subscribe",
            "topic": f"{name}/#",
            "filter": f"{name}/#",
            "message": f"Subscribed to filter '{name}/#'",
        }
        server.broker.publish_server(f"{name}/a", b"1")
        event = await talker.event()
        assert (event["topic"], event["data"]) == (f"{name}/a", 1)
        assert (await talker.ask("unsubscribe", filter=f"{name}/#"))["type"] == "ack"
        assert (await talker.ask("unsubscribe", filter=f"{name}/#"))["code"] == "NOT_SUBSCRIBED"


async def test_overlapping_filters_bring_one_copy(server: Server, topic: str) -> None:
    async with Talker(server) as talker:
        await talker.subscribe(topic)
        for filter in ("#", "+"):
            await talker.ask("subscribe", filter=filter)
        await talker.publish(topic, 1, 2)
        assert await talker.data(2) == [1, 2]


async def test_a_filter_that_is_none_is_refused(server: Server) -> None:
    async with Talker(server) as talker:
        answer = await talker.ask("subscribe", filter="a/#/b")
        assert answer["code"] == "SUBSCRIBE_FAILED"
        assert answer["details"] == {"code": "invalid-filter", "filter": "a/#/b"}


async def test_one_subscription_too_many_is_refused(start: Start) -> None:
    server = await start(sessions=SessionSettings(max_subscriptions=1))
    async with Talker(server) as talker:
        await talker.ask("subscribe", filter="a/#")
        answer = await talker.ask("subscribe", filter="b/#")
        assert (answer["code"], answer["details"]["code"]) == ("SUBSCRIBE_FAILED", "quota-exceeded")


async def test_answers_come_in_the_order_of_the_requests(server: Server, topic: str) -> None:
    async with Talker(server) as talker:
        publish = {"type": "publish", "topic": topic, "data": 1}
        subscribe = {"type": "subscribe", "topic": topic}
        await talker.send(publish, {"type": "ping"}, "{", publish, subscribe, publish, {"type": "ping"})
        answers = [await talker.answer() for _ in range(7)]
        told = [answer.get("message", "").split(" to ")[-1] or answer["type"] for answer in answers]
        assert told == [
            "0 subscriber(s)",
            "pong",
            "Message must be valid JSON",
            "0 subscriber(s)",
            f"topic '{topic}'",
            "1 subscriber(s)",
            "pong",
        ]


async def test_the_subscribers_of_a_deleted_topic_are_told(server: Server, topic: str) -> None:
    async with Talker(server) as exact, Talker(server) as broad:
        await exact.subscribe(topic)
        await broad.ask("subscribe", filter="#")
        server.broker.delete_topic(topic)
        assert await exact.answer() == {
            "type": "info",
            "message": f"Topic '{topic}' was deleted",
            "details": {"topic": topic},
        }
        assert (await exact.ask("unsubscribe", topic=topic))["code"] == "NOT_SUBSCRIBED"
        assert (await exact.ask("publish", topic=topic, data=1))["code"] == NOT_FOUND
        assert await broad.ask("ping") == {"type": "pong"}


# Order of a publish's response and its event


async def test_response_to_a_publish_comes_before_its_own_event(server: Server, topic: str) -> None:
    async with Talker(server) as talker:
        await talker.subscribe(topic)
        for number in range(20):
            await talker.send({"type": "publish", "topic": topic, "data": number})
            ack, event = await talker.read(), await talker.read()
            assert (ack["type"], ack["request_type"]) == ("ack", "publish")
            assert (event["type"], event["data"]) == ("event", number)


async def test_response_comes_first_also_with_a_filter_and_in_a_group(server: Server, topic: str) -> None:
    async with Talker(server) as talker:
        for filter in (f"+/{topic}", f"$share/group/{topic}"):
            assert (await talker.ask("subscribe", filter=filter))["type"] == "ack"
        await talker.send({"type": "publish", "topic": topic, "data": 1})
        assert [(await talker.read())["type"] for _ in range(2)] == ["ack", "event"]


async def test_events_of_one_read_come_behind_its_responses_in_order(server: Server, topic: str) -> None:
    async with Talker(server) as talker:
        await talker.subscribe(topic)
        await talker.send_at_once(
            *({"type": "publish", "topic": topic, "data": n, "request_id": n} for n in range(3))
        )
        said = [await talker.read() for _ in range(6)]
        assert [each.get("request_id") for each in said[:3]] == [0, 1, 2]
        assert [each.get("data") for each in said[3:]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("last_n", "count"),
    [("5", 5), (" 5 ", 5), ("5.0", 5), (5.0, 5), (True, 1), (False, 0), ("0", 0), ("1000", 1000)],
)
def test_last_n_is_coerced_as_its_clients_know_it(last_n: Any, count: int) -> None:
    request = read_request(json.dumps({"type": "subscribe", "topic": "a", "last_n": last_n}))
    assert isinstance(request, Subscribe)
    assert (request.last_n, type(request.last_n)) == (count, int)
