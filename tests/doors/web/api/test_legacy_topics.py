"""Topics as clients of the In-memory Pub/Sub make, list and delete them, answered in the words they know.

Messages and subscribers of each topic, in the form that the In-memory Pub/Sub gives them.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from msgspec import json
from websockets.asyncio.client import connect

from penstock.app import Server
from penstock.common.topics import TopicLimits
from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival
from penstock.core.ports.log import Settled
from penstock.core.sessions.session import Session
from penstock.core.settings import AccessSettings
from penstock.core.subscriptions.subscription import Options
from penstock.errors import StorageUnavailable
from penstock.model import Door, Policy
from tests.doors.serving import EVERYTHING, Start, client_of, mqtt_of, port_of
from tests.support.connection import MemoryConnection
from tests.support.encodings import PlainEncoding, as_plain

BAD_NAME = "Invalid topic name. Use alphanumeric, underscore, hyphen, or dot only."


async def make(http: httpx.AsyncClient, name: object) -> httpx.Response:
    return await http.post("/topics", json={"name": name})


def subscribe(server: Server, client_id: str, topic: str) -> Session:
    """A client of the web door that listens to a topic."""
    arrival = Arrival(Identity(None, client_id), Door.WEB)
    session, _ = server.broker.connect(arrival, MemoryConnection(), as_plain)
    server.broker.resume(session)
    server.broker.subscribe(session, topic, Options(), PlainEncoding(), policy=Policy.DISCONNECT)
    return session


# Making


@pytest.mark.parametrize("name", ["orders", "A-b_c.9", "x" * 255, "..."])
async def test_a_topic_is_made_however_often_that_is_asked(http: httpx.AsyncClient, name: str) -> None:
    for _ in range(2):
        answer = await make(http, name)
        assert (answer.status_code, answer.json()) == (201, {"name": name, "created": True})
        assert answer.headers["content-type"] == "application/json"
    assert (await http.get("/topics")).json() == [name]


@pytest.mark.parametrize(
    "name", [".", "..", "a/b", "a b", "#", "a+", "$SYS", "é", "a\n", "\0", "\u0661", "a\ud800"]
)
async def test_a_name_with_other_characters_is_refused(http: httpx.AsyncClient, name: str) -> None:
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in name)
    body = f'{{"name": "{escaped}"}}'
    answer = await http.post("/topics", content=body)
    is_text = "\ud800" not in name  # half a character is no text, so that is no name at all
    assert answer.status_code == (400 if is_text else 422)
    if is_text:
        assert answer.json() == {"detail": BAD_NAME}
    assert (await http.get("/topics")).json() == []


@pytest.mark.parametrize(
    "body",
    [
        *('{"name": ""}', f'{{"name": "{"x" * 256}"}}', "{}", '{"name": null}', '{"name": 3}'),
        *("[]", "", "{", '"orders"', '{"name": "a"', "[" * 100_000),
    ],
)
async def test_a_body_without_a_name_is_refused(http: httpx.AsyncClient, body: str) -> None:
    answer = await http.post("/topics", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert list(answer.json()) == ["detail"]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("", {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}),
        ("{}", {"type": "missing", "loc": ["body", "name"], "msg": "Field required", "input": {}}),
        (
            '{"name": 3}',
            {
                "type": "string_type",
                "loc": ["body", "name"],
                "msg": "Input should be a valid string",
                "input": 3,
            },
        ),
        (
            '{"name": ""}',
            {
                "type": "string_too_short",
                "loc": ["body", "name"],
                "msg": "String should have at least 1 character",
                "input": "",
                "ctx": {"min_length": 1},
            },
        ),
        (
            "[]",
            {
                "type": "model_attributes_type",
                "loc": ["body"],
                "msg": "Input should be a valid dictionary or object to extract fields from",
                "input": [],
            },
        ),
    ],
)
async def test_what_is_wrong_with_a_body_is_listed_as_fastapi_does(
    http: httpx.AsyncClient, body: str, fault: dict[str, Any]
) -> None:
    answer = await http.post("/topics", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()) == (422, {"detail": [fault]})


async def test_broken_json_is_listed_with_its_place(http: httpx.AsyncClient) -> None:
    answer = await http.post("/topics", content='{"name": ', headers={"Content-Type": "application/json"})
    [fault] = answer.json()["detail"]
    assert (fault["type"], fault["loc"], fault["msg"]) == ("json_invalid", ["body", 9], "JSON decode error")


async def test_the_path_with_a_slash_leads_to_the_one_without(http: httpx.AsyncClient) -> None:
    for method in ("GET", "POST"):
        answer = await http.request(method, "/topics/")
        assert (answer.status_code, answer.headers["location"]) == (307, "/topics")
    assert (await http.get("/topics/", follow_redirects=True)).json() == []


async def test_a_body_that_is_no_text_is_told_what_it_should_be(http: httpx.AsyncClient) -> None:
    answer = await http.post("/topics", content=b'{"name": "\xff"}')
    assert answer.status_code == 422
    assert "JSON is UTF-8, and this is not" in str(answer.json()["detail"])


async def test_other_keys_are_overlooked_as_they_always_were(http: httpx.AsyncClient) -> None:
    answer = await http.post("/topics", json={"name": "a", "partitions": 3})
    assert answer.json() == {"name": "a", "created": True}


@pytest.mark.parametrize(
    ("method", "path", "allowed"), [("PUT", "/topics", "POST"), ("POST", "/topics/a", "DELETE")]
)
async def test_a_method_that_is_not_offered_is_refused(
    http: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await http.request(method, path)
    assert answer.status_code == 405
    assert allowed in answer.headers["allow"]


async def test_one_topic_too_many_is_refused(start: Start) -> None:
    server = await start(topic=TopicLimits(max_topics=1), sys_interval_s=0)
    async with client_of(server) as http:
        assert (await make(http, "a")).status_code == 201
        answer = await make(http, "b")
        assert answer.status_code == 429
        assert list(answer.json()) == ["detail"]


# Listing


async def test_topics_of_every_door_are_listed_and_the_servers_own_are_not(
    server: Server, http: httpx.AsyncClient
) -> None:
    assert any(name.startswith("$") for name in server.broker.topics)
    await make(http, "made")
    async with mqtt_of(server) as client:
        await client.publish("garden/pond", b"x", qos=1)
    await http.post("/api/v1/publish", json={"topic": 'a "quoted" one', "data": 1})
    assert (await http.get("/topics")).json() == ["made", "garden/pond", 'a "quoted" one']


async def test_very_many_topics_are_listed(server: Server, http: httpx.AsyncClient) -> None:
    names = [f"t{number}" for number in range(3_000)]
    for name in names:
        server.broker.declare_topic(name)
    assert (await http.get("/topics")).json() == names
    assert list((await http.get("/stats")).json()["topics"]) == names


# Deleting


@pytest.mark.parametrize(("name", "path"), [("a", "a"), ("a/b", "a/b"), ("a/b", "a%2Fb"), ("é", "%C3%A9")])
async def test_a_deleted_topic_is_there_no_more(
    server: Server, http: httpx.AsyncClient, name: str, path: str
) -> None:
    await http.post("/api/v1/publish", json={"topic": name, "data": 1, "retain": True})
    answer = await http.delete(f"/topics/{path}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await http.get("/topics")).json() == []
    assert (await http.get("/stats")).json() == {"topics": {}}
    assert (await http.get("/metrics")).json()["topics"] == {}
    assert (await http.get("/health")).json()["topic_count"] == 0
    assert (await http.get("/api/v1/retained")).json()["retained"] == []
    again = await http.delete(f"/topics/{path}")
    assert (again.status_code, again.json()) == (404, {"detail": f"Topic '{name}' not found"})


@pytest.mark.parametrize(("path", "name"), [("no", "no"), ("a%2B", "a+"), ("%23", "#"), ("", "")])
async def test_what_is_not_there_cannot_be_deleted(http: httpx.AsyncClient, path: str, name: str) -> None:
    answer = await http.delete(f"/topics/{path}")
    assert (answer.status_code, answer.json()) == (404, {"detail": f"Topic '{name}' not found"})


async def test_a_topic_with_ten_subscribers_is_deleted_and_each_is_told(
    server: Server, http: httpx.AsyncClient
) -> None:
    await make(http, "orders")
    async with AsyncExitStack() as stack:
        address = f"ws://127.0.0.1:{port_of(server, 'http')}/ws"
        sockets = [await stack.enter_async_context(connect(address)) for _ in range(10)]
        for socket in sockets:
            await socket.send('{"type": "subscribe", "topic": "orders"}')
            assert [json.decode(await socket.recv())["type"] for _ in range(2)] == ["info", "ack"]
        await http.post("/api/v1/publish", json={"topic": "orders", "data": "last"})
        assert (await http.delete("/topics/orders")).status_code == 204
        for socket in sockets:
            event, info = [json.decode(await socket.recv()) for _ in range(2)]
            assert (event["type"], event["data"]) == ("event", "last")
            assert info == {
                "type": "info",
                "message": "Topic 'orders' was deleted",
                "details": {"topic": "orders"},
            }
        await sockets[0].send('{"type": "publish", "topic": "orders", "data": 1}')
        assert json.decode(await sockets[0].recv())["code"] == "TOPIC_NOT_FOUND"


async def test_whoever_tells_subscribers_of_a_deletion_gets_all_of_them(
    server: Server, http: httpx.AsyncClient
) -> None:
    told: list[tuple[str, set[Session]]] = []
    server.broker.notify_topic_deleted(lambda name, sessions: told.append((name, set(sessions))))
    await make(http, "orders")
    subscribers = {subscribe(server, f"c{number}", "orders") for number in range(10)}
    assert (await http.delete("/topics/orders")).status_code == 204
    assert told == [("orders", subscribers)]
    assert (await http.get("/health")).json()["active_subscriber_count"] == 0


# Many at once


async def test_fifty_topics_are_made_and_deleted_beside_forty_other_calls(
    server: Server, http: httpx.AsyncClient
) -> None:
    names = [f"topic-{number}" for number in range(50)]
    made = await asyncio.gather(*(make(http, name) for name in names))
    assert {answer.status_code for answer in made} == {201}
    assert set((await http.get("/topics")).json()) == set(names)
    dice = Random(50)

    async def mixed(number: int) -> int:
        match number % 4:
            case 0:
                return (await make(http, f"extra-{number}")).status_code
            case 1:
                return (await http.get(dice.choice(["/topics", "/stats", "/metrics"]))).status_code
            case 2:
                message = {"topic": f"extra-{number}", "data": number}
                return (await http.post("/api/v1/publish", json=message)).status_code
            case _:
                return (await http.delete(f"/topics/never-{number}")).status_code

    answers, statuses = await asyncio.gather(
        asyncio.gather(*(http.delete(f"/topics/{name}") for name in names)),
        asyncio.gather(*(mixed(number) for number in range(40))),
    )
    assert {answer.status_code for answer in answers} == {204}
    assert set(statuses) == {200, 201, 404}
    left = {f"extra-{number}" for number in range(40) if number % 4 in (0, 2)}
    assert set((await http.get("/topics")).json()) == left


# Across a restart, and without a disk


async def test_topics_that_were_made_outlive_the_server(start: Start, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data_dir": str(tmp_path / "data"), "log": EVERYTHING}
    server = await start(**settings)
    async with client_of(server) as http:
        await make(http, "stays")
        await make(http, "goes")
        assert (await http.delete("/topics/goes")).status_code == 204
    await start.stop(server)
    async with client_of(await start(**settings)) as http:
        assert (await http.get("/topics")).json() == ["stays"]


@pytest.mark.parametrize(("failure", "statuses"), [(None, (201, 204)), (OSError("no room"), (503, 503))])
async def test_the_answer_comes_when_the_commit_has_ended(
    stored_server: Server,
    stored_http: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception | None,
    statuses: tuple[int, int],
) -> None:
    asked: asyncio.Queue[Settled] = asyncio.Queue()
    monkeypatch.setattr(stored_server.broker._topic_admin, "when_stored", asked.put_nowait)
    for call, status in zip((make(stored_http, "a"), stored_http.delete("/topics/a")), statuses, strict=True):
        answer = asyncio.create_task(call)
        settle = await asked.get()
        assert not answer.done()
        settle(failure)
        assert (await answer).status_code == status


async def test_while_nothing_can_be_stored_callers_are_told_to_come_again(
    stored_server: Server, stored_http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(stored_http, "a")
    monkeypatch.setattr(type(stored_server.broker.log), "failure", StorageUnavailable("the disk is full"))
    for answer in (await make(stored_http, "b"), await stored_http.delete("/topics/a")):
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
    monkeypatch.undo()
    assert (await stored_http.get("/topics")).json() == ["a"]


# When the server stops


async def test_a_server_that_is_about_to_stop_says_so(server: Server, http: httpx.AsyncClient) -> None:
    await make(http, "a")
    for call in (make(http, "b"), http.delete("/topics/a")):
        server.http.is_draining = True  # nobody new comes in, and who is here has one more answer
        answer = await call
        assert (answer.status_code, answer.json()) == (503, {"detail": "Server is shutting down"})
        server.http.is_draining = False


# Who may


async def test_rights_are_those_of_every_door(start: Start, tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("anonymous\npublish mine\nsubscribe mine\nsubscribe read\n")
    server = await start(access=AccessSettings(acl_file=str(tmp_path / "acl")))
    for name in ("read", "secret"):
        server.broker.declare_topic(name)
    async with client_of(server) as http:
        assert (await make(http, "mine")).status_code == 201
        for name in ("secret", "read", "none"):
            made, deleted = await make(http, name), await http.delete(f"/topics/{name}")
            assert (made.status_code, deleted.status_code) == (403, 403), name
            assert list(deleted.json()) == ["detail"]
        assert (await http.get("/topics")).json() == ["read", "mine"]
        assert set((await http.get("/stats")).json()["topics"]) == {"read", "mine"}
        assert (await http.delete("/topics/mine")).status_code == 204
        assert (await http.delete("/topics/%24SYS%2Fbroker%2Fversion")).status_code == 403
    assert server.broker.has_topic("secret")


async def test_strangers_are_not_let_in(start: Start, tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    server = await start(access=AccessSettings(password_file=str(tmp_path / "passwords")))
    async with client_of(server) as http:
        answers = (await make(http, "a"), await http.delete("/topics/a"), await http.get("/topics"))
        for answer in (*answers, await http.get("/stats")):
            assert answer.status_code == 401
            assert list(answer.json()) == ["detail"]
    assert not server.broker.has_topic("a")


async def test_a_page_from_elsewhere_makes_no_topics(server: Server, http: httpx.AsyncClient) -> None:
    strange = {"Origin": "https://evil.example"}
    answer = await http.post("/topics", json={"name": "a"}, headers=strange)
    assert answer.status_code == 403
    server.broker.declare_topic("b")
    assert (await http.delete("/topics/b", headers=strange)).status_code == 403
    assert server.broker.has_topic("b") and not server.broker.has_topic("a")


async def test_each_topic_has_its_messages_and_its_subscribers(
    server: Server, http: httpx.AsyncClient
) -> None:
    await http.post("/topics", json={"name": "quiet"})
    async with mqtt_of(server) as one, mqtt_of(server) as other:
        await one.subscribe("orders")
        await other.subscribe("#")
        for _ in range(3):
            await one.publish("orders", b"x", qos=1)
        answer = await http.get("/stats")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "topics": {
            "quiet": {"message_count": 0, "subscriber_count": 1},
            "orders": {"message_count": 3, "subscriber_count": 2},
        }
    }


async def test_without_topics_there_is_nothing_to_tell(http: httpx.AsyncClient) -> None:
    assert (await http.get("/stats")).json() == {"topics": {}}


async def test_a_topic_that_comes_back_is_counted_anew(http: httpx.AsyncClient) -> None:
    for count in (2, 1):
        for _ in range(count):
            await http.post("/api/v1/publish", json={"topic": "a", "data": 1})
        told = (await http.get("/stats")).json()["topics"]["a"]
        assert told == {"message_count": count, "subscriber_count": 0}
        await http.delete("/topics/a")
