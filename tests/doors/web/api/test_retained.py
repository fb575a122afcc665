"""Retained values over HTTP: by filter, one as it is, and its removal."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock.app import Server
from penstock.common.cursor import Cursor
from penstock.core.settings import AccessSettings
from tests.doors.serving import Start, client_of, mqtt_of, mqtt_properties


async def retain(server: Server, values: dict[str, bytes], **options: Any) -> None:
    async with mqtt_of(server, "sender") as sender:
        for topic, value in values.items():
            await sender.publish(topic, value, qos=1, retain=True, **options)


def typed(content_type: str, expiry_s: int | None = None) -> Properties:
    properties = mqtt_properties(PacketTypes.PUBLISH, ContentType=content_type)
    if expiry_s is not None:
        properties.MessageExpiryInterval = expiry_s
    return properties


async def listed(http: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await http.get("/api/v1/retained", params=asked)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def topics(page: dict[str, Any]) -> list[str]:
    return [message["topic"] for message in page["retained"]]


async def test_values_come_by_topic_a_page_at_a_time(server: Server, http: httpx.AsyncClient) -> None:
    await retain(server, {"b": b"2", "a/x": b"1", "a": b"0"})
    first = await listed(http, limit=2)
    assert (topics(first), first["next"], first["matching"]) == (["a", "a/x"], "a/x", 3)
    assert [message["data"] for message in first["retained"]] == [0, 1]
    second = await listed(http, limit=2, after=first["next"])
    assert (topics(second), second["next"]) == (["b"], None)


async def test_values_are_chosen_by_a_filter(server: Server, http: httpx.AsyncClient) -> None:
    await retain(server, {"roof/temp": b"1", "roof/wind": b"2", "cellar/temp": b"3"})
    assert topics(await listed(http, filter="+/temp")) == ["cellar/temp", "roof/temp"]
    assert topics(await listed(http, filter="roof/#")) == ["roof/temp", "roof/wind"]


async def test_values_of_the_server_come_only_when_asked_for(server: Server, http: httpx.AsyncClient) -> None:
    await retain(server, {"a": b"1"})
    assert topics(await listed(http)) == ["a"]
    assert "$SYS/broker/version" in topics(await listed(http, filter="$SYS/#"))


async def test_a_value_is_given_as_it_was_published(server: Server, http: httpx.AsyncClient) -> None:
    await retain(server, {"a/b": b"<xml/>"}, properties=typed("text/xml; charset=utf-8"))
    answer = await http.get("/api/v1/retained/a/b")
    assert (answer.status_code, answer.content) == (200, b"<xml/>")
    assert answer.headers["content-type"] == "text/xml; charset=utf-8"
    assert answer.headers["penstock-sequence"] == "1"
    assert Cursor.decode(answer.headers["penstock-cursor"]).positions[0].epoch == server.broker.log.epoch
    assert answer.headers["penstock-published-at"].endswith("Z")


@pytest.mark.parametrize("topic", ["a/../b", ".", "a\x01b", "a bü?&"])
async def test_a_value_is_also_given_by_a_topic_in_the_query(
    server: Server, http: httpx.AsyncClient, topic: str
) -> None:
    server.broker.publish_server(topic, b"<xml/>", retain=True)
    answer = await http.get("/api/v1/retained", params={"topic": topic})
    assert (answer.status_code, answer.content) == (200, b"<xml/>")
    assert answer.headers["penstock-sequence"] == "1"
    assert answer.headers["content-security-policy"].startswith("sandbox")


@pytest.mark.parametrize("asked", [{"filter": "#"}, {"limit": "1"}, {"after": "a"}])
async def test_one_value_is_not_asked_for_with_anything_else(
    http: httpx.AsyncClient, asked: dict[str, str]
) -> None:
    answer = await http.get("/api/v1/retained", params={"topic": "a", **asked})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request")


async def test_a_value_cannot_act_as_a_page_of_this_server(server: Server, http: httpx.AsyncClient) -> None:
    await retain(server, {"page": b"<script>"}, properties=typed("text/html"))
    answer = await http.get("/api/v1/retained/page")
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("content_type", ["text/plain", "text/csv; header=present", "TEXT/html"])
async def test_a_content_type_is_left_as_it_was(
    server: Server, http: httpx.AsyncClient, content_type: str
) -> None:
    await retain(server, {"a": b"x"}, properties=typed(content_type))
    assert (await http.get("/api/v1/retained/a")).headers["content-type"] == content_type


@pytest.mark.parametrize("content_type", ["", "nonsense", "text/html\r\nX-Evil: 1", "text/ä", "a/b; c"])
async def test_a_content_type_that_is_none_is_not_passed_on(
    server: Server, http: httpx.AsyncClient, content_type: str
) -> None:
    await retain(server, {"a": b"x"}, properties=typed(content_type))
    answer = await http.get("/api/v1/retained/a")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "x-evil" not in answer.headers


async def test_a_topic_without_a_value_is_not_known(server: Server, http: httpx.AsyncClient) -> None:
    await retain(server, {"a": b"x", "gone": b"x"})
    await retain(server, {"gone": b""})
    for topic in ("never", "gone"):
        answer = await http.get(f"/api/v1/retained/{topic}")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-topic")
    assert topics(await listed(http)) == ["a"]


async def test_a_value_that_is_no_json_is_listed_as_bytes(server: Server, http: httpx.AsyncClient) -> None:
    await retain(server, {"a": b"\xff"})
    (message,) = (await listed(http))["retained"]
    assert message["data"] == {"$bytes": b64encode(b"\xff").decode()}


async def test_a_page_of_large_values_ends_early_and_goes_on(server: Server, http: httpx.AsyncClient) -> None:
    large = b'"%s"' % (b"x" * (3 << 20))
    await retain(server, dict.fromkeys("abc", large))
    first = await listed(http)
    assert (topics(first), first["next"], first["matching"]) == (["a", "b"], "b", 3)
    assert topics(await listed(http, after="b")) == ["c"]


async def test_values_that_may_not_be_read_are_neither_listed_nor_given(start: Start, tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth mine/#\npublish theirs/#\n")
    server = await start(access=AccessSettings(acl_file=str(rules)))
    await retain(server, {"mine/a": b"1", "theirs/a": b"2"})
    async with client_of(server) as http:
        page = await listed(http)
        assert (topics(page), page["matching"]) == (["mine/a"], 1)
        assert topics(await listed(http, filter="theirs/#")) == []
        for topic in ("theirs/a", "theirs/never"):
            for path in (f"/api/v1/retained/{topic}", f"/api/v1/retained?topic={topic}"):
                answer = await http.get(path)
                assert (answer.status_code, answer.json()["code"]) == (403, "not-authorized")


@pytest.mark.parametrize("path", ["a/%23", "%2B"])
async def test_a_filter_is_no_topic(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(f"/api/v1/retained/{path}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-topic")


async def test_what_is_no_filter_is_refused(http: httpx.AsyncClient) -> None:
    answer = await http.get("/api/v1/retained", params={"filter": "a/#/b"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-filter")


# Removal


@pytest.mark.parametrize("path", ["/a/b", "?topic=a/b"])
async def test_a_value_is_removed_as_an_empty_message_would(
    server: Server, http: httpx.AsyncClient, path: str
) -> None:
    await retain(server, {"a/b": b"1", "a/c": b"2"})
    async with mqtt_of(server, "reader") as reader:
        await reader.subscribe("a/b", qos=1)
        assert (await anext(aiter(reader.messages))).payload == b"1"
        answer = await http.delete(f"/api/v1/retained{path}")
        assert (answer.status_code, answer.content) == (204, b"")
        message = await anext(aiter(reader.messages))
        assert (message.payload, message.qos) == (b"", 1)
    assert topics(await listed(http)) == ["a/c"]
    again = await http.delete(f"/api/v1/retained{path}")
    assert (again.status_code, again.json()["code"]) == (404, "unknown-topic")


async def test_a_removed_value_does_not_come_back(start: Start, tmp_path: Path) -> None:
    server = await start(data_dir=str(tmp_path / "data"))
    await retain(server, {"a": b"1", "b": b"2"})
    async with client_of(server) as http:
        assert (await http.delete("/api/v1/retained/a")).status_code == 204
    await start.stop(server)
    async with client_of(await start(data_dir=str(tmp_path / "data"))) as http:
        assert topics(await listed(http)) == ["b"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/mine/a", 204, ""),
        ("/mine/none", 404, "unknown-topic"),
        ("/theirs/a", 403, "not-authorized"),
        ("/theirs/none", 403, "not-authorized"),
        ("/$SYS/broker/version", 403, "not-authorized"),
        ("/a/%23", 400, "invalid-topic"),
        ("", 400, "invalid-request"),
        ("?filter=mine/a", 400, "invalid-request"),
    ],
)
async def test_removal_needs_the_right_to_publish(
    start: Start, tmp_path: Path, path: str, status: int, code: str
) -> None:
    (tmp_path / "acl").write_text("anonymous\nboth mine/#\nsubscribe theirs/#\n")
    server = await start(access=AccessSettings(acl_file=str(tmp_path / "acl")))
    for topic in ("mine/a", "theirs/a"):
        server.broker.publish_server(topic, b"1", retain=True)
    async with client_of(server) as http:
        answer = await http.delete(f"/api/v1/retained{path}")
        assert (answer.status_code, answer.json()["code"] if answer.content else "") == (status, code)
        assert topics(await listed(http)) == (["theirs/a"] if status == 204 else ["mine/a", "theirs/a"])
