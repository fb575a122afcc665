"""POST /api/v1/publish: messages go in over HTTP, and out over MQTT."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI

from penstock.app import Server
from penstock.common.cursor import Cursor
from penstock.common.topics import TopicLimits
from penstock.core.access.identity import Identity
from penstock.core.settings import AccessSettings, MessageIdSettings
from penstock.doors.web.api.publish import PATH, routes
from penstock.doors.web.context import Web
from penstock.doors.web.publishing import MAX_MESSAGES
from penstock.doors.web.support.error_handlers import handle_failures
from penstock.net.door import Peer as Address
from penstock.net.http.settings import HttpSettings
from penstock.wire.mqtt import PacketProperties, Publish, Request
from tests.doors.mqtt.peers import Peer, Peers
from tests.doors.serving import Start, client_of, port_of
from tests.support.waiting import until

MARKED = PacketProperties(user=(("penstock-meta", ""),))


@pytest.fixture
async def peers(server: Server) -> AsyncIterator[Peers]:
    """MQTT clients of the same server."""
    peers = Peers(port_of(server, "mqtt"))
    yield peers
    await peers.close()


@pytest.fixture
async def reader(peers: Peers, name: str) -> Peer:
    """Somebody at the MQTT door who gets everything below the test's name, and is told where it stands."""
    peer = await peers.connect()
    await peer.subscribe(Request(f"{name}/#", 2), properties=MARKED)
    return peer


async def post(http: httpx.AsyncClient, *args: Any, **options: Any) -> dict[str, Any]:
    """Publish what must be taken, and tell the receipt."""
    answer = await http.post(PATH, *args, **options)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return dict(answer.json())


async def refused(http: httpx.AsyncClient, status: int, code: str, **options: Any) -> dict[str, Any]:
    """Publish what must not be taken, and tell the problem."""
    answer = await http.post(PATH, **options)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = dict(answer.json())
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code), problem
    return problem


# One message as JSON


async def test_a_message_arrives_at_the_mqtt_door_with_the_sequence_of_its_receipt(
    http: httpx.AsyncClient, reader: Peer, name: str
) -> None:
    receipts = [await post(http, json={"topic": f"{name}/a", "data": {"n": n}}) for n in range(3)]
    messages = await received(reader, 3)
    assert [json.loads(message.payload) for message in messages] == [{"n": 0}, {"n": 1}, {"n": 2}]
    marks = [dict(message.properties.user) for message in messages]
    assert [receipt["sequence"] for receipt in receipts] == [1, 2, 3]
    assert [mark["ps-seq"] for mark in marks] == ["1", "2", "3"]
    assert [mark["ps-cursor"] for mark in marks] == [receipt["cursor"] for receipt in receipts]
    first = {"topic": f"{name}/a", "sequence": 1, "epoch": 1, "subscribers": 1, "stored": False}
    assert receipts[0] == {**first, "cursor": receipts[0]["cursor"]}


async def received(reader: Peer, count: int) -> list[Publish]:
    return await reader.receive_all(count)


async def test_everything_that_travels_with_a_payload_arrives(
    http: httpx.AsyncClient, reader: Peer, name: str
) -> None:
    message = {
        "topic": f"{name}/a",
        "payload": "naïve",
        "qos": 2,
        "ttl_ms": 90_500,
        "content_type": "text/plain",
        "correlation_id": "käse-1",
        "response_topic": "answers/here",
        "message_id": "m-1",
        "properties": {"one": "1", "many": ["a", "b"]},
    }
    receipt = await post(http, json=message)
    (arrived,) = [await reader.receive(Publish)]
    properties = arrived.properties
    assert arrived.payload == "naïve".encode()
    assert arrived.qos == 2
    assert properties.message_expiry == 91
    assert (properties.content_type, properties.correlation_data) == ("text/plain", "käse-1".encode())
    assert properties.response_topic == "answers/here"
    assert properties.user[:3] == (("one", "1"), ("many", "a"), ("many", "b"))
    assert receipt["message_id"] == "m-1"


@pytest.mark.parametrize("qos", range(3))
async def test_messages_are_delivered_at_their_level(
    http: httpx.AsyncClient, reader: Peer, name: str, qos: int
) -> None:
    await post(http, json={"topic": f"{name}/a", "data": 1, "qos": qos})
    assert (await reader.receive(Publish)).qos == qos


async def test_the_level_is_one_unless_told(http: httpx.AsyncClient, reader: Peer, name: str) -> None:
    await post(http, json={"topic": f"{name}/a", "data": 1})
    assert (await reader.receive(Publish)).qos == 1


@pytest.mark.parametrize(
    ("body", "payload", "content_type"),
    [
        (b'"data": {"b": [1,  2]}', b'{"b": [1,  2]}', "application/json"),
        (b'"data": null', b"null", "application/json"),
        (b'"data": "text"', b'"text"', "application/json"),
        (b'"data": {"$bytes": "AP8="}', b"\x00\xff", None),
        (b'"data": 1, "content_type": "application/x-one"', b"1", "application/x-one"),
        (b'"payload": "text"', b"text", None),
        (b'"payload": ""', b"", None),
    ],
)
async def test_a_payload_is_json_text_or_bytes(
    http: httpx.AsyncClient, reader: Peer, name: str, body: bytes, payload: bytes, content_type: str | None
) -> None:
    await post(http, content=b'{"topic": "%b/a", %b}' % (name.encode(), body))
    arrived = await reader.receive(Publish)
    assert (arrived.payload, arrived.properties.content_type) == (payload, content_type)


async def test_a_retained_message_is_the_value_of_its_topic_until_an_empty_one(
    http: httpx.AsyncClient, peers: Peers, name: str
) -> None:
    await post(http, json={"topic": name, "data": 1, "retain": True})
    one = await peers.connect()
    await one.subscribe(name)
    assert (await one.receive(Publish)).retain
    await post(http, json={"topic": name, "payload": "", "retain": True})
    other = await peers.connect()
    await other.subscribe(name)
    assert await other.fence() == []


async def test_subscribers_are_counted_once_whatever_they_subscribed_to(
    http: httpx.AsyncClient, peers: Peers, name: str
) -> None:
    one, other = await peers.connect(), await peers.connect()
    await one.subscribe(name, f"{name}/#", "+")
    await other.subscribe(f"$share/g/{name}")
    assert (await post(http, json={"topic": name, "data": 1}))["subscribers"] == 2


async def test_a_receipt_has_a_cursor_after_which_the_next_message_comes(
    http: httpx.AsyncClient, server: Server, name: str
) -> None:
    first, second = [await post(http, json={"topic": name, "data": n}) for n in range(2)]
    places = [Cursor.decode(receipt["cursor"]).positions[0] for receipt in (first, second)]
    assert places[1].offset == places[0].offset + 1
    assert {place.log_id for place in places} == {server.broker.log.log_id}


async def test_the_message_says_who_published_it(http: httpx.AsyncClient, server: Server, name: str) -> None:
    await post(http, json={"topic": name, "data": 1}, headers={"X-Client-Id": "script"})
    (run,) = server.broker.topics[name].runs
    assert (run.client_id, run.shape.door) == ("script", "web")
    assert "script" not in server.broker.sessions


async def test_curl_need_not_say_that_its_body_is_json(http: httpx.AsyncClient, name: str) -> None:
    body = json.dumps({"topic": name, "data": 1}).encode()
    await post(http, content=body, headers={"Content-Type": "application/x-www-form-urlencoded"})


# What is not taken


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        (b"", "invalid-request", "truncated"),
        (b"{", "invalid-request", "truncated"),
        (b"17", "invalid-request", "object"),
        (b'{"topic": "a"}', "invalid-request", "data or payload"),
        (b'{"data": 1}', "invalid-request", "topic"),
        (b'{"topic": "a", "data": 1, "payload": "x"}', "invalid-request", "data or payload"),
        (b'{"topic": "a", "payload": null}', "invalid-request", "payload"),
        (b'{"topic": "a", "data": 1, "dta": 2}', "invalid-request", "dta"),
        (b'{"topic": 1, "data": 1}', "invalid-request", "topic"),
        (b'{"topic": "a", "data": 1, "qos": 3}', "invalid-request", "qos"),
        (b'{"topic": "a", "data": 1, "qos": "1"}', "invalid-request", "qos"),
        (b'{"topic": "a", "data": 1, "retain": 1}', "invalid-request", "retain"),
        (b'{"topic": "a", "data": 1, "ttl_ms": 0}', "invalid-request", "ttl_ms"),
        (b'{"topic": "a", "data": 1, "ttl_ms": 99999999999999}', "invalid-request", "ttl_ms"),
        (b'{"topic": "a", "data": 1, "properties": {"a": 1}}', "invalid-request", "properties"),
        (b'{"topic": "a", "data": 1, "properties": {"a": "\\u0000"}}', "invalid-request", "null character"),
        (b'{"topic": "a", "data": 1, "message_id": ""}', "invalid-request", "message id"),
        (b'{"topic": "a\xff", "data": 1}', "invalid-request", ""),
        (b'{"topic": "a", "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid-request", "deep"),
        (b'{"topic": "", "data": 1}', "invalid-topic", "character"),
        (b'{"topic": "a/+", "data": 1}', "invalid-topic", "filters"),
        (b'{"topic": "a", "data": 1, "response_topic": "#"}', "invalid-topic", "filters"),
        (b'{"topic": "a", "data": {"$bytes": "?"}}', "invalid-payload", "base64"),
        (b'{"topic": "a", "data": "\xff"}', "invalid-payload", "UTF-8"),
    ],
)
async def test_a_body_that_is_no_message_is_refused(
    http: httpx.AsyncClient, server: Server, body: bytes, code: str, word: str
) -> None:
    problem = await refused(http, 400, code, content=body)
    assert word in problem["detail"]
    assert server.broker.counters.published == 0


async def test_a_payload_that_is_too_large_is_refused_and_one_that_just_fits_is_not(start: Start) -> None:
    server = await start(max_payload_bytes=1_000)
    async with client_of(server) as http:
        await post(http, json={"topic": "a", "payload": "x" * 1_000})
        await refused(http, 413, "too-large", json={"topic": "a", "payload": "x" * 1_001})
        await refused(http, 413, "too-large", params={"topic": "a"}, content=b"x" * 1_001)


async def test_more_texts_than_can_travel_are_refused(http: httpx.AsyncClient) -> None:
    properties = {str(number): "x" * 1_000 for number in range(66)}
    await refused(http, 413, "too-large", json={"topic": "a", "data": 1, "properties": properties})


async def test_another_kind_of_body_without_a_topic_is_refused(http: httpx.AsyncClient) -> None:
    problem = await refused(
        http, 415, "unsupported-media", content=b"x", headers={"Content-Type": "text/plain"}
    )
    assert "topic in the query" in problem["detail"]


async def test_topics_of_the_server_are_not_for_callers(http: httpx.AsyncClient, server: Server) -> None:
    await refused(http, 403, "not-authorized", json={"topic": "$SYS/x", "data": 1})
    assert server.broker.counters.publishes_refused == 1
    assert server.broker.counters.actions_forbidden == 1


async def test_nobody_publishes_to_a_topic_that_the_rules_do_not_give_them(
    start: Start, tmp_path: Path, name: str
) -> None:
    rules = tmp_path / "acl"
    rules.write_text(f"anonymous\npublish {name}/mine\n", encoding="utf-8")
    server = await start(access=AccessSettings(acl_file=str(rules)))
    async with client_of(server) as http:
        await post(http, json={"topic": f"{name}/mine", "data": 1})
        await refused(http, 403, "not-authorized", json={"topic": f"{name}/others", "data": 1})
        rules.write_text("anonymous\nsubscribe #\n", encoding="utf-8")
        server.reload()
        await refused(http, 403, "not-authorized", json={"topic": f"{name}/mine", "data": 1})


async def test_one_topic_too_many_is_refused_for_now(start: Start) -> None:
    server = await start(topic=TopicLimits(max_topics=3), sys_interval_s=0.0)
    async with client_of(server) as http:
        for number in range(3):
            await post(http, json={"topic": str(number), "data": 1})
        problem = await refused(http, 429, "quota-exceeded", json={"topic": "more", "data": 1})
        assert problem["retryable"] is True


async def test_get_is_not_offered(http: httpx.AsyncClient) -> None:
    answer = await http.get(PATH)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


# Many


async def test_a_list_is_published_in_order_with_a_receipt_for_each(
    http: httpx.AsyncClient, reader: Peer, name: str
) -> None:
    batch = [{"topic": f"{name}/{number % 3}", "data": number} for number in range(300)]
    receipts = (await post(http, json=batch))["receipts"]
    messages = await received(reader, 300)
    assert [message.payload for message in messages] == [b"%d" % number for number in range(300)]
    assert [receipt["sequence"] for receipt in receipts] == [number // 3 + 1 for number in range(300)]
    marks = [dict(message.properties.user)["ps-cursor"] for message in messages]
    assert marks == [receipt["cursor"] for receipt in receipts]


async def test_an_empty_list_is_nothing_to_do(http: httpx.AsyncClient) -> None:
    assert await post(http, content=b" [ ] ") == {"receipts": []}


async def test_if_one_of_a_list_is_no_message_none_is_published(
    http: httpx.AsyncClient, server: Server, reader: Peer, name: str
) -> None:
    good = {"topic": f"{name}/a", "data": 1}
    batch = [good, {"topic": f"{name}/a"}, good, {"topic": f"{name}/a", "data": 1, "response_topic": "#"}]
    problem = await refused(http, 400, "invalid-request", json=batch)
    assert problem["errors"] == [
        {"index": 1, "code": "invalid-request", "detail": "a message has either data or payload"},
        {"index": 3, "code": "invalid-topic", "detail": problem["errors"][1]["detail"]},
    ]
    assert "message 1" in problem["detail"]
    assert await reader.fence() == []
    assert server.broker.counters.published == 0


@pytest.mark.parametrize(
    ("topic", "status", "code"), [("#", 400, "invalid-topic"), ("$SYS/a", 403, "not-authorized")]
)
@pytest.mark.parametrize("others", [0, 2])
async def test_if_one_of_a_list_may_not_be_published_none_is(
    http: httpx.AsyncClient, server: Server, topic: str, status: int, code: str, others: int
) -> None:
    batch = [{"topic": "a", "data": 1}] * others + [{"topic": topic, "data": 1}]
    problem = await refused(http, status, code, json=batch)
    assert [(error["index"], error["code"]) for error in problem["errors"]] == [(others, code)]
    assert server.broker.counters.published == 0


async def test_of_very_many_errors_some_are_told(http: httpx.AsyncClient) -> None:
    problem = await refused(http, 400, "invalid-topic", json=[{"topic": "", "data": 1}] * 1_000)
    assert [error["index"] for error in problem["errors"]] == list(range(100))


async def test_a_list_has_a_longest_length(http: httpx.AsyncClient) -> None:
    batch = [{"topic": "a", "data": 1}] * MAX_MESSAGES
    assert len((await post(http, json=batch))["receipts"]) == MAX_MESSAGES
    await refused(http, 413, "too-large", json=[*batch, batch[0]])


async def test_a_list_that_is_no_json_is_refused(http: httpx.AsyncClient) -> None:
    problem = await refused(http, 400, "invalid-request", content=b'[{"topic": "a", "data": 1}, {]')
    assert "errors" not in problem


# Bare payloads


async def test_any_body_is_a_payload_if_its_topic_is_in_the_query(
    http: httpx.AsyncClient, reader: Peer, name: str
) -> None:
    body = bytes(range(256))
    receipt = await post(http, params={"topic": f"{name}/ä b"}, content=body)
    arrived = await reader.receive(Publish)
    assert (arrived.topic, arrived.payload, arrived.properties.content_type) == (f"{name}/ä b", body, None)
    assert receipt["topic"] == f"{name}/ä b"


async def test_everything_else_may_be_in_headers(http: httpx.AsyncClient, reader: Peer, name: str) -> None:
    headers = [
        ("Penstock-Topic", quote(f"{name}/ä b", safe="/")),
        ("Penstock-Qos", "2"),
        ("Penstock-Retain", "true"),
        ("Penstock-Ttl-Ms", "5000"),
        ("Penstock-Message-Id", "m%201"),
        ("Penstock-Correlation-Id", "c=1"),
        ("Penstock-Response-Topic", "answers/%C3%A4"),
        ("Penstock-Property", "a=1=2"),
        ("Penstock-Property", "%C3%A4=%20"),
        ("Content-Type", "image/png"),
    ]
    receipt = await post(http, content=b"\x89PNG", headers=headers)
    arrived = await reader.receive(Publish)
    properties = arrived.properties
    assert (arrived.topic, arrived.payload, arrived.qos) == (f"{name}/ä b", b"\x89PNG", 2)
    assert properties.message_expiry == 5
    assert (properties.content_type, properties.correlation_data) == ("image/png", b"c=1")
    assert properties.response_topic == "answers/ä"
    assert properties.user[:2] == (("a", "1=2"), ("ä", " "))
    assert receipt["message_id"] == "m 1"
    kept = await http.get(f"/api/v1/retained/{quote(f'{name}/ä b')}")
    assert (kept.content, kept.headers["content-type"]) == (b"\x89PNG", "image/png")


async def test_json_with_a_topic_in_the_query_is_a_payload_as_it_is(
    http: httpx.AsyncClient, reader: Peer, name: str
) -> None:
    await post(http, params={"topic": f"{name}/a"}, json=[{"topic": "b", "data": 1}])
    arrived = await reader.receive(Publish)
    assert json.loads(arrived.payload) == [{"topic": "b", "data": 1}]
    assert arrived.properties.content_type == "application/json"


async def test_what_curl_says_of_every_body_is_not_its_content_type(
    http: httpx.AsyncClient, reader: Peer, name: str
) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    await post(http, params={"topic": f"{name}/a"}, content=b"21.5", headers=headers)
    assert (await reader.receive(Publish)).properties.content_type is None


@pytest.mark.parametrize(
    ("query", "headers", "word"),
    [
        ({"topic": "a"}, {"Penstock-Topic": "a"}, "twice"),
        ({"topic": "a", "qos": "1"}, {}, "qos"),
        ({"topic": "a"}, {"Penstock-Quality": "1"}, "Penstock-Quality"),
        ({"topic": "a"}, {"Penstock-Qos": "3"}, "0 to 2"),
        ({"topic": "a"}, {"Penstock-Qos": "٢"}, "Penstock-Qos"),
        ({"topic": "a"}, {"Penstock-Qos": "9" * 5_000}, "0 to 2"),
        ({"topic": "a"}, {"Penstock-Retain": "maybe"}, "true or false"),
        ({"topic": "a"}, {"Penstock-Ttl-Ms": "-1"}, "Ttl-Ms"),
        ({"topic": "a"}, {"Penstock-Property": "a"}, "name=value"),
        ({"topic": "a"}, {"Penstock-Correlation-Id": "%FF"}, "UTF-8"),
        ({}, {"Penstock-Topic": "%FF"}, "UTF-8"),
        ({}, {"Penstock-Qos": "1"}, "Penstock-Topic"),
        ({"qos": "1"}, {}, "qos"),
    ],
)
async def test_wishes_that_cannot_be_are_refused(
    http: httpx.AsyncClient, query: dict[str, str], headers: dict[str, str], word: str
) -> None:
    raw = [(key.encode(), value.encode()) for key, value in headers.items()]
    problem = await refused(http, 400, "invalid-request", params=query, content=b"x", headers=raw)
    assert word in problem["detail"]


async def test_a_wish_that_is_told_twice_is_refused(http: httpx.AsyncClient) -> None:
    headers = [("Penstock-Qos", "1"), ("Penstock-Qos", "2")]
    await refused(http, 400, "invalid-request", params={"topic": "a"}, content=b"x", headers=headers)


# The same message again


async def test_the_same_id_is_published_once(http: httpx.AsyncClient, reader: Peer, name: str) -> None:
    message = {"topic": f"{name}/a", "data": 1, "message_id": "m"}
    first, second = [await post(http, json=message) for _ in range(2)]
    assert second == {**first, "duplicate": True}
    assert len(await received(reader, 1)) == 1
    assert await reader.fence() == []


async def test_the_same_id_at_once_on_many_connections_is_published_once(
    server: Server, reader: Peer, name: str
) -> None:
    message = {"topic": f"{name}/a", "data": 1, "message_id": "m"}
    async with client_of(server) as http:
        receipts = await asyncio.gather(*(post(http, json=message) for _ in range(20)))
    assert sum("duplicate" not in receipt for receipt in receipts) == 1
    assert {(receipt["sequence"], receipt["cursor"]) for receipt in receipts} == {(1, receipts[0]["cursor"])}
    assert len(await received(reader, 1)) == 1
    assert await reader.fence() == []


async def test_ids_within_a_list_count_as_well(http: httpx.AsyncClient, reader: Peer, name: str) -> None:
    batch = [{"topic": f"{name}/a", "data": n, "message_id": i} for n, i in enumerate(["x", "y", "x"])]
    receipts = (await post(http, json=batch))["receipts"]
    assert [receipt["sequence"] for receipt in receipts] == [1, 2, 1]
    again = (await post(http, json=batch))["receipts"]
    assert all(receipt["duplicate"] for receipt in again)
    assert [message.payload for message in await received(reader, 2)] == [b"0", b"1"]
    assert await reader.fence() == []


async def test_ids_need_not_be_remembered(start: Start, name: str) -> None:
    server = await start(message_ids=MessageIdSettings(max=0))
    async with client_of(server) as http:
        message = {"topic": name, "data": 1, "message_id": "m"}
        assert [(await post(http, json=message))["sequence"] for _ in range(2)] == [1, 2]


async def test_a_client_that_has_gone_gets_its_receipt_when_it_asks_again(
    server: Server, http: httpx.AsyncClient, name: str
) -> None:
    message = {"topic": name, "data": 1, "message_id": "m"}
    body = json.dumps(message).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(server, "http"))
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    await until(lambda: server.broker.counters.published != 0, "no message was published", every_s=0.001)
    writer.transport.abort()
    assert (await post(http, json=message))["duplicate"] is True


# Stopping, and alone


async def test_what_is_asked_while_the_server_stops_is_answered(start: Start, name: str) -> None:
    server = await start()
    async with client_of(server) as http:
        await post(http, json={"topic": name, "data": 1})
        server.broker.stop()
        problem = await refused(http, 503, "shutting-down", json={"topic": name, "data": 1})
        assert problem["retryable"] is True


@pytest.fixture
async def alone(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application without the listener."""
    web = Web(
        broker=server.broker,
        clock=server.broker._node.clock,
        version="0",
        build="pure",
        node_id="",
        started_at=0.0,
        settings=HttpSettings(),
        figures=None,  # type: ignore[arg-type]  # publishing needs neither
        staging=None,  # type: ignore[arg-type]
    )
    app = FastAPI()
    app.include_router(routes(web))
    handle_failures(app)

    async def host(scope: Any, receive: Any, send: Any) -> None:
        scope["state"] = {"identity": Identity(None, "me"), "peer": Address("127.0.0.1", 1)}
        await app(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(host), base_url="http://test") as client:
        yield client


async def test_the_application_alone_publishes_too(
    alone: httpx.AsyncClient, server: Server, reader: Peer, name: str
) -> None:
    receipt = await post(alone, json={"topic": f"{name}/a", "data": 1})
    await post(alone, params={"topic": f"{name}/a"}, content=b"2", headers={"Penstock-Qos": "0"})
    messages = await received(reader, 2)
    assert [(message.payload, message.qos) for message in messages] == [(b"1", 1), (b"2", 0)]
    assert (receipt["sequence"], receipt["subscribers"]) == (1, 1)
    assert {run.client_id for run in server.broker.topics[f"{name}/a"].runs} == {"me"}
    await refused(alone, 400, "invalid-topic", json={"topic": "#", "data": 1})


async def test_the_description_tells_of_every_form(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    operation = document["paths"][PATH]["post"]
    assert set(operation["requestBody"]["content"]) == {"application/json", "*/*"}
    message = document["components"]["schemas"]["NewMessage"]
    assert message["additionalProperties"] is False
    assert {"topic", "data", "payload", "qos", "message_id"} <= set(message["properties"])
    assert {"200", "400", "403", "413", "415", "429", "503"} <= set(operation["responses"])


async def read_response(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return dict(json.loads(await reader.readexactly(length)))


async def test_request_behind_a_long_list_does_not_overtake_it(server: Server, name: str) -> None:
    long = json.dumps([{"topic": f"{name}/{number}", "payload": "x"} for number in range(3_000)]).encode()
    short = json.dumps({"topic": f"{name}/0", "payload": "last"}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server, "http"))
    for body in (long, short):
        writer.write(
            f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        )
        writer.write(body)
    receipts = (await read_response(reader))["receipts"]
    assert [receipt["topic"] for receipt in receipts] == [f"{name}/{number}" for number in range(3_000)]
    last = Cursor.decode((await read_response(reader))["cursor"])
    assert last.positions[0].offset > max(
        Cursor.decode(each["cursor"]).positions[0].offset for each in receipts
    )
    writer.close()


async def test_list_whose_last_message_is_refused_publishes_nothing(
    server: Server, http: httpx.AsyncClient, name: str
) -> None:
    before = server.broker.counters.published
    messages = [{"topic": f"{name}/{number}", "payload": "x"} for number in range(3_000)]
    problem = await refused(http, 400, "invalid-topic", json=[*messages, {"topic": "a/#", "payload": "x"}])
    assert [each["index"] for each in problem["errors"]] == [3_000]
    assert server.broker.counters.published == before
