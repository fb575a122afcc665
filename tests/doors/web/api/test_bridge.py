"""POST /publish: what callers of an MQTT broker's HTTP bridge send, and what they expect."""

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.app import Server
from penstock.core.settings import AccessSettings
from penstock.wire.mqtt import Publish
from tests.doors.mqtt.peers import Peers
from tests.doors.serving import Start, client_of, port_of

PATH = "/publish"


@pytest.fixture
async def peers(server: Server) -> AsyncIterator[Peers]:
    """MQTT clients of the same server."""
    peers = Peers(port_of(server, "mqtt"))
    yield peers
    await peers.close()


def message(topic: str, payload: bytes = b"x", **more: Any) -> dict[str, Any]:
    return {"topic": topic, "payload": b64encode(payload).decode(), **more}


@pytest.mark.parametrize("qos", range(3))
async def test_a_message_is_published_and_the_answer_is_ok(
    http: httpx.AsyncClient, peers: Peers, name: str, qos: int
) -> None:
    reader = await peers.connect()
    await reader.subscribe(name, qos=2)
    answer = await http.post(PATH, json=message(name, b"\x00\xff", qos=qos))
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    arrived = await reader.receive(Publish)
    assert (arrived.payload, arrived.qos) == (b"\x00\xff", qos)


async def test_the_level_is_zero_and_nothing_is_retained_unless_told(
    http: httpx.AsyncClient, server: Server, name: str
) -> None:
    await http.post(PATH, json=message(name))
    (run,) = server.broker.topics[name].runs
    assert (run.shape.qos, run.shape.retain, run.shape.door) == (0, False, "web")


async def test_a_retained_message_is_kept(http: httpx.AsyncClient, peers: Peers, name: str) -> None:
    await http.post(PATH, json=message(name, b"kept", retain=True))
    reader = await peers.connect()
    await reader.subscribe(name)
    assert (await reader.receive(Publish)).payload == b"kept"


@pytest.mark.parametrize("body", [b'{"topic": "%b"}', b'{"topic": "%b", "payload": null, "other": 1}'])
async def test_a_message_needs_no_payload_and_may_have_more(
    http: httpx.AsyncClient, server: Server, name: str, body: bytes
) -> None:
    answer = await http.post(PATH, content=body % name.encode())
    assert answer.status_code == 200
    assert [run.payload() for run in server.broker.topics[name].runs] == [b""]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "invalid JSON"),
        (b"topic=a", "invalid JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "invalid JSON"),
        (b'{"topic": "a", "payload": "no base64"}', "base64"),
        (b'{"topic": "a\xff"}', "invalid JSON"),
        (b'{"payload": "eA=="}', "topic is required"),
        (b'{"topic": ""}', "topic is required"),
        (b'{"topic": "a", "qos": 3}', "qos"),
        (b'{"topic": "a", "qos": -1}', "qos"),
        (b'{"topic": "a/#"}', "publish failed: a topic holds no"),
    ],
)
async def test_what_is_wrong_is_told_in_plain_text(
    http: httpx.AsyncClient, server: Server, body: bytes, word: str
) -> None:
    answer = await http.post(PATH, content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8")
    assert word in answer.text
    assert server.broker.counters.published == 0


async def test_who_may_not_publish_is_told_so(start: Start, tmp_path: Path, name: str) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\npublish mine\n", encoding="utf-8")
    server = await start(access=AccessSettings(acl_file=str(rules)))
    async with client_of(server) as http:
        assert (await http.post(PATH, json=message("mine"))).status_code == 200
        answer = await http.post(PATH, json=message(name))
    assert (answer.status_code, answer.text) == (403, f"publish failed: not allowed to publish to {name}")


async def test_a_payload_that_is_too_large_is_refused(start: Start, name: str) -> None:
    server = await start(max_payload_bytes=10)
    async with client_of(server) as http:
        answer = await http.post(PATH, json=message(name, b"x" * 11))
    assert answer.status_code == 413
    assert answer.text.startswith("publish failed: ")


async def test_a_server_that_stops_takes_nothing(http: httpx.AsyncClient, server: Server, name: str) -> None:
    server.broker.stop()
    answer = await http.post(PATH, json=message(name))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.text == "publish failed: the server is about to stop"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_only_post_is_offered(http: httpx.AsyncClient, method: str) -> None:
    assert (await http.request(method, PATH)).status_code == 405
