"""The history of a topic over HTTP: every way to begin, every page, and what its statement says."""

import asyncio
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiomqtt
import httpx
import pyarrow as pa
import pytest
from paho.mqtt.packettypes import PacketTypes

from penstock.app import Server
from penstock.common.cursor import Cursor
from penstock.core.settings import AccessSettings, RingSettings
from tests.doors.serving import EVERYTHING, Start, client_of, mqtt_of, mqtt_properties
from tests.support.waiting import until

ARROW = "application/vnd.apache.arrow.stream"


async def publish(server: Server, topic: str, payloads: Iterable[bytes], **options: Any) -> None:
    """Publish over MQTT, each message acknowledged."""
    async with mqtt_of(server, "sender") as sender:
        for payload in payloads:
            await sender.publish(topic, payload, qos=1, **options)


async def read(http: httpx.AsyncClient, topic: str, **asked: Any) -> dict[str, Any]:
    answer = await http.get(f"/api/v1/topics/{topic}/messages", params=asked)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    assert page["statement"]["served"] == len(page["messages"])
    return page


def sequences(page: dict[str, Any]) -> list[int]:
    return [message["sequence"] for message in page["messages"]]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(1, count + 1)]


@pytest.mark.parametrize("topic", ["a/b", "a/../b", ".", "..", "a\x01b", "a b?&ü"])
async def test_any_topic_is_read_when_it_is_in_the_query(
    server: Server, http: httpx.AsyncClient, topic: str
) -> None:
    for payload in numbers(3):
        server.broker.publish_server(topic, payload)
    answer = await http.get("/api/v1/messages", params={"topic": topic, "after_sequence": 1, "limit": 1})
    page = answer.json()
    assert [(message["topic"], message["sequence"]) for message in page["messages"]] == [(topic, 2)]
    assert not page["statement"]["is_at_head"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({}, "invalid-request"),
        ({"topic": ""}, "invalid-request"),
        ({"topic": "a/#"}, "invalid-topic"),
        ({"topic": "a", "last": 1, "after_sequence": 1}, "invalid-request"),
    ],
)
async def test_a_topic_in_the_query_is_checked_like_one_in_the_path(
    http: httpx.AsyncClient, asked: dict[str, str], code: str
) -> None:
    answer = await http.get("/api/v1/messages", params=asked)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_what_mqtt_published_is_read_with_its_sequences_and_cursors(
    server: Server, http: httpx.AsyncClient
) -> None:
    await publish(server, "a/b", [b'{"temp": 20.5}', b"plain text", b"\xff\x00"])
    page = await read(http, "a/b")
    assert sequences(page) == [1, 2, 3]
    first, second, third = page["messages"]
    assert first["data"] == {"temp": 20.5}
    assert (second["data"], second["encoding"]) == ("plain text", "text")
    assert not {"encoding"} & (set(first) | set(third))
    assert b64decode(third["data"]["$bytes"]) == b"\xff\x00"
    assert (first["topic"], first["qos"], first["retain"]) == ("a/b", 1, False)
    assert (first["door"], first["client_id"], first["epoch"]) == ("mqtt", "sender", server.broker.log.epoch)
    offsets = [Cursor.decode(message["cursor"]).positions[0].offset for message in page["messages"]]
    assert offsets == sorted(set(offsets))
    assert page["statement"]["is_at_head"]
    assert page["statement"]["is_complete"]


async def test_properties_of_a_message_are_told(server: Server, http: httpx.AsyncClient) -> None:
    properties = mqtt_properties(
        PacketTypes.PUBLISH,
        ContentType="application/json",
        CorrelationData=b"\xff1",
        ResponseTopic="answers",
        MessageExpiryInterval=1000,
        UserProperty=[("unit", "C"), ("tag", "a"), ("tag", "b")],
    )
    await publish(server, "a", [b"1"], properties=properties, retain=True)
    (message,) = (await read(http, "a"))["messages"]
    assert message["content_type"] == "application/json"
    assert message["correlation_id"] == {"$bytes": "/zE="}
    assert message["response_topic"] == "answers"
    assert message["properties"] == {"unit": "C", "tag": ["a", "b"]}
    assert message["expires_at"] > message["published_at"]
    assert message["retain"] is True


async def test_what_a_message_does_not_have_is_left_out(server: Server, http: httpx.AsyncClient) -> None:
    await publish(server, "a", [b"1"])
    (message,) = (await read(http, "a"))["messages"]
    assert not {"content_type", "correlation_id", "expires_at", "properties"} & set(message)


@pytest.mark.parametrize("kind", ["memory", "disk"])
async def test_pages_joined_by_their_cursors_have_every_message_once(
    start: Start, tmp_path: Path, kind: str
) -> None:
    stored: dict[str, Any] = {"data_dir": str(tmp_path / "data"), "log": EVERYTHING} if kind == "disk" else {}
    server = await start(**stored)
    await publish(server, "a", numbers(25))
    await publish(server, "b", numbers(5))
    async with client_of(server) as http:
        page = await read(http, "a", after_sequence=0, limit=10)
        found = sequences(page)
        while not page["statement"]["is_at_head"]:
            page = await read(http, "a", after=page["statement"]["next"], limit=10)
            found += sequences(page)
    assert found == list(range(1, 26))


async def test_a_message_s_own_cursor_is_where_the_next_one_follows(
    server: Server, http: httpx.AsyncClient
) -> None:
    await publish(server, "a", numbers(5))
    third = (await read(http, "a"))["messages"][2]
    assert sequences(await read(http, "a", after=third["cursor"])) == [4, 5]


async def test_history_begins_after_a_sequence_at_a_time_or_near_the_end(
    server: Server, http: httpx.AsyncClient
) -> None:
    await publish(server, "a", numbers(3))
    await asyncio.sleep(0.002)  # times are by the microsecond, but clocks may be coarser
    await publish(server, "a", numbers(3))
    messages = (await read(http, "a"))["messages"]
    assert sequences(await read(http, "a", after_sequence=4)) == [5, 6]
    assert sequences(await read(http, "a", last=2)) == [5, 6]
    assert sequences(await read(http, "a", last=2, limit=1)) == [5]
    assert sequences(await read(http, "a", limit=2)) == [5, 6]
    assert sequences(await read(http, "a", **{"from": messages[3]["published_at"]})) == [4, 5, 6]
    assert sequences(await read(http, "a", **{"from": "earliest"})) == [1, 2, 3, 4, 5, 6]
    assert sequences(await read(http, "a", **{"from": "latest"})) == []
    assert sequences(await read(http, "a", **{"from": "1970-01-01T00:00:00Z"})) == [1, 2, 3, 4, 5, 6]


async def test_a_sequence_that_is_not_there_yet_gives_an_empty_page_at_the_head(
    server: Server, http: httpx.AsyncClient
) -> None:
    await publish(server, "a", numbers(2))
    page = await read(http, "a", after_sequence=10)
    assert (sequences(page), page["statement"]["is_at_head"]) == ([], True)


async def test_what_has_left_memory_is_told_with_its_reason(start: Start) -> None:
    server = await start(ring=RingSettings(messages=3))
    await publish(server, "a", numbers(10))
    async with client_of(server) as http:
        page = await read(http, "a", after_sequence=5, limit=2)
    assert sequences(page) == [8, 9]
    assert page["statement"]["missing"] == [{"topic": "a", "first": 6, "last": 7, "reason": "evicted"}]
    assert not page["statement"]["is_complete"]
    assert not page["statement"]["is_at_head"]


async def test_a_page_tells_only_what_is_missing_up_to_its_end(http: httpx.AsyncClient) -> None:
    for lifetime in (None, None, 1, None):
        await http.post("/api/v1/publish", json={"topic": "a", "data": 1, "ttl_ms": lifetime})

    async def page_with_a_gap() -> dict[str, Any] | None:
        page = await read(http, "a", after_sequence=0)
        return None if page["statement"]["is_complete"] else page

    page = await until(page_with_a_gap, "no message expired")
    assert [(each["first"], each["reason"]) for each in page["statement"]["missing"]] == [(3, "expired")]
    first = await read(http, "a", after_sequence=0, limit=1)
    assert (sequences(first), first["statement"]["missing"]) == ([1], [])
    second = await read(http, "a", after_sequence=0, limit=2)
    assert (sequences(second), len(second["statement"]["missing"])) == ([1, 2], 1)
    third = await read(http, "a", after=second["statement"]["next"])
    assert (sequences(third), third["statement"]["missing"]) == ([4], [])


async def test_history_outlives_a_restart_with_its_sequences_and_epochs(start: Start, tmp_path: Path) -> None:
    stored: dict[str, Any] = {"data_dir": str(tmp_path / "data"), "log": EVERYTHING}
    before = await start(**stored)
    await publish(before, "a", numbers(2))
    async with client_of(before) as http:
        cursor = (await read(http, "a"))["messages"][0]["cursor"]
    await start.stop(before)
    after = await start(**stored)
    await publish(after, "a", numbers(1))
    async with client_of(after) as http:
        page = await read(http, "a", after_sequence=0)
        assert sequences(page) == [1, 2, 3]
        epochs = [message["epoch"] for message in page["messages"]]
        assert epochs == [before.broker.log.epoch] * 2 + [after.broker.log.epoch]
        assert epochs[0] < epochs[2]
        assert sequences(await read(http, "a", after=cursor)) == [2, 3]
        # As a new process would, which has not seen the topic yet:
        assert sequences(await read(http, "a", last=1)) == [3]


async def test_a_cursor_of_another_log_is_refused(server: Server, http: httpx.AsyncClient) -> None:
    await publish(server, "a", numbers(1))
    cursor = server.broker.history.cursor()
    foreign = Cursor(tuple(type(each)("00" * 8, each.epoch, each.offset) for each in cursor.positions))
    answer = await http.get("/api/v1/topics/a/messages", params={"after": foreign.encode()})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-cursor")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"after": "nonsense"}, "invalid-cursor"),
        ({"after": "x", "last": "1"}, "invalid-request"),
        ({"after_sequence": "0", "from": "earliest"}, "invalid-request"),
        ({"after_sequence": "-1"}, "invalid-request"),
        ({"after_sequence": str(2**64)}, "invalid-request"),
        ({"from": "yesterday"}, "invalid-request"),
        ({"last": "0"}, "invalid-request"),
        ({"last": "10001"}, "invalid-request"),
        ({"format": "xml"}, "invalid-request"),
    ],
)
async def test_a_beginning_that_makes_no_sense_is_refused(
    server: Server, http: httpx.AsyncClient, asked: dict[str, str], code: str
) -> None:
    await publish(server, "a", numbers(1))
    answer = await http.get("/api/v1/topics/a/messages", params=asked)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


@pytest.mark.parametrize(
    ("path", "topic"),
    [
        ("a/b", "a/b"),
        ("a%2Fb", "a/b"),
        ("/a", "/a"),
        ("%2Fa", "/a"),
        ("a/", "a/"),
        ("a//b", "a//b"),
        ("/", "/"),
        ("messages", "messages"),
        ("a/messages", "a/messages"),
        ("a%20b", "a b"),
        ("%C3%A4", "ä"),
        ("a%3Fb", "a?b"),
    ],
)
async def test_a_topic_is_addressed_with_all_its_slashes(
    server: Server, http: httpx.AsyncClient, path: str, topic: str
) -> None:
    await publish(server, topic, numbers(1))
    (message,) = (await read(http, path))["messages"]
    assert message["topic"] == topic


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("a/%23", "invalid-topic"),
        ("%2B/b", "invalid-topic"),
        ("", "invalid-request"),
        ("x" * 5000, "invalid-topic"),
    ],
)
async def test_what_is_no_topic_is_refused(http: httpx.AsyncClient, path: str, code: str) -> None:
    answer = await http.get(f"/api/v1/topics/{path}/messages")
    assert answer.status_code == 400
    assert answer.json()["code"] == code


async def test_a_topic_that_never_had_a_message_is_not_known(server: Server, http: httpx.AsyncClient) -> None:
    async with mqtt_of(server) as reader:
        await reader.subscribe("a")  # which makes no message
        answer = await http.get("/api/v1/topics/a/messages")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-topic")


async def test_a_topic_that_may_not_be_read_says_nothing(start: Start, tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth mine/#\npublish theirs/#\n")
    server = await start(access=AccessSettings(acl_file=str(rules)))
    await publish(server, "mine/a", numbers(1))
    await publish(server, "theirs/a", numbers(1))
    async with client_of(server) as http:
        assert sequences(await read(http, "mine/a")) == [1]
        for topic in ("theirs/a", "theirs/never"):
            answer = await http.get(f"/api/v1/topics/{topic}/messages")
            assert (answer.status_code, answer.json()["code"]) == (403, "not-authorized")


async def test_history_comes_as_arrow_if_asked_for(
    stored_server: Server, stored_http: httpx.AsyncClient
) -> None:
    await publish(stored_server, "a", numbers(6))
    await publish(stored_server, "b", numbers(1))
    path = "/api/v1/topics/a/messages"
    answer = await stored_http.get(path, params={"after_sequence": 2, "limit": 3}, headers={"Accept": ARROW})
    assert answer.headers["content-type"] == ARROW
    rows, statement = arrow_of(answer.content)
    assert rows.column("sequence").to_pylist() == [3, 4, 5]
    assert rows.column("payload").to_pylist() == [b"3", b"4", b"5"]
    assert (statement["served"], statement["is_at_head"]) == (3, False)
    rest = await stored_http.get(path, params={"after": statement["next"], "format": "arrow"})
    rows, statement = arrow_of(rest.content)
    assert rows.column("sequence").to_pylist() == [6]


async def test_an_empty_page_is_arrow_too(stored_server: Server, stored_http: httpx.AsyncClient) -> None:
    await publish(stored_server, "a", numbers(1))
    answer = await stored_http.get(
        "/api/v1/topics/a/messages", params={"after_sequence": 1, "format": "arrow"}
    )
    rows, statement = arrow_of(answer.content)
    assert (rows.num_rows, statement["served"]) == (0, 0)


def arrow_of(body: bytes) -> tuple[pa.Table, dict[str, Any]]:
    """The rows of an Arrow answer, and the statement of its last batch."""
    import json  # noqa: PLC0415

    batches = list(iter_batches(body))
    statement = json.loads(batches[-1][1][b"penstock.statement"])
    return pa.Table.from_batches([batch for batch, _ in batches]), statement


def iter_batches(body: bytes) -> Iterable[tuple[pa.RecordBatch, dict[bytes, bytes]]]:
    with pa.ipc.open_stream(body) as stream:
        while True:
            try:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            yield batch, dict(metadata or {})


async def test_without_a_log_there_is_no_arrow(server: Server, http: httpx.AsyncClient) -> None:
    await publish(server, "a", numbers(1))
    for accept in (ARROW, "text/html"):
        answer = await http.get("/api/v1/topics/a/messages", headers={"Accept": accept})
        assert (answer.status_code, answer.json()["code"]) == (406, "not-acceptable")


@pytest.mark.parametrize(
    "accept", ["*/*", "application/*;q=0.5, text/html", f"{ARROW};q=0.1, application/json"]
)
async def test_json_is_what_most_callers_get(
    stored_server: Server, stored_http: httpx.AsyncClient, accept: str
) -> None:
    await publish(stored_server, "a", numbers(1))
    answer = await stored_http.get("/api/v1/topics/a/messages", headers={"Accept": accept})
    assert answer.headers["content-type"] == "application/json"


async def test_a_page_of_large_messages_ends_before_it_is_too_large(
    server: Server, http: httpx.AsyncClient
) -> None:
    await publish(server, "a", [b"x" * 100_000] * 2)  # what a ring holds of one topic
    page = await read(http, "a", limit=10_000)
    assert sequences(page) == [1, 2]


async def test_an_mqtt_subscriber_and_history_tell_the_same_sequences_and_cursors(
    server: Server, http: httpx.AsyncClient
) -> None:
    marks = mqtt_properties(PacketTypes.SUBSCRIBE, UserProperty=[("penstock-meta", "")])
    async with mqtt_of(server) as reader:
        await reader.subscribe("a", qos=1, properties=marks)
        await publish(server, "a", numbers(3))
        heard: list[aiomqtt.Message] = []
        async for message in reader.messages:
            heard.append(message)
            if len(heard) == 3:
                break
    told = [dict(message.properties.UserProperty) for message in heard]  # type: ignore[union-attr]
    page = await read(http, "a")
    assert [int(each["ps-seq"]) for each in told] == sequences(page)
    assert [each["ps-cursor"] for each in told] == [message["cursor"] for message in page["messages"]]
