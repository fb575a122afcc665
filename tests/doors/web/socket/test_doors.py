"""Said at one door and heard at another: `/ws` beside MQTT and the HTTP API."""

import json
import logging
from base64 import b64encode
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from paho.mqtt.packettypes import PacketTypes
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from penstock.app import Server
from penstock.core.settings import AccessSettings
from penstock.wire.websocket.encoding import CloseCode
from tests.access.scene import stored
from tests.doors.serving import Start, mqtt_of, mqtt_properties, port_of
from tests.doors.web.socket.talking import Talker


async def test_what_mqtt_clients_publish_are_events(server: Server, name: str) -> None:
    async with Talker(server) as talker, mqtt_of(server) as mqtt:
        await talker.ask("subscribe", filter=f"{name}/#")
        for payload in (b'{"a": 1}', b"\xff\x00", b"not json", b" 17\n"):
            await mqtt.publish(f"{name}/a", payload, qos=1)
        events = [await talker.event() for _ in range(4)]
        assert [event["data"] for event in events] == [
            {"a": 1},
            {"$bytes": b64encode(b"\xff\x00").decode()},
            "not json",
            17,
        ]
        assert [event.get("encoding") for event in events] == [None, None, "text", None]
        assert [event["sequence"] for event in events] == [1, 2, 3, 4]
        assert len({UUID(event["message_id"]) for event in events}) == 4


async def test_what_is_published_here_reaches_mqtt_clients_as_json(server: Server, name: str) -> None:
    server.broker.declare_topic(name)
    async with Talker(server) as talker, mqtt_of(server) as mqtt:
        await mqtt.subscribe(name, qos=1)
        await talker.send(f'{{"type":"publish","topic":"{name}","data": {{"b" :1.50}} }}')
        await talker.publish(name, {"$bytes": "AP8="})
        messages = [await anext(mqtt.messages) for _ in range(2)]
        assert [message.payload for message in messages] == [b'{"b" :1.50}', b"\x00\xff"]
        assert [message.qos for message in messages] == [1, 1]
        types = [getattr(message.properties, "ContentType", None) for message in messages]
        assert types == ["application/json", None]


async def test_an_mqtt_client_that_is_away_gets_it_later(server: Server, name: str) -> None:
    server.broker.declare_topic(name)
    stays = {"properties": lasting(600), "clean_start": False}
    async with mqtt_of(server, name, **stays) as mqtt:
        await mqtt.subscribe(name, qos=1)
    async with Talker(server) as talker:
        assert (await talker.ask("publish", topic=name, data=1))["message"] == "Published to 1 subscriber(s)"
    async with mqtt_of(server, name, **stays) as mqtt:
        assert (await anext(mqtt.messages)).payload == b"1"


def lasting(expiry_s: int) -> object:
    return mqtt_properties(PacketTypes.CONNECT, SessionExpiryInterval=expiry_s)


async def test_a_cursor_of_http_begins_a_subscription_and_the_other_way_round(
    server: Server, http: httpx.AsyncClient, name: str
) -> None:
    receipts = []
    for number in range(4):
        answer = await http.post("/api/v1/publish", json={"topic": name, "data": number})
        receipts.append(answer.json())
    async with Talker(server) as talker:
        await talker.subscribe(name, after=receipts[1]["cursor"])
        events = [await talker.event() for _ in range(2)]
    assert [event["data"] for event in events] == [2, 3]
    assert [event["cursor"] for event in events] == [receipt["cursor"] for receipt in receipts[2:]]
    page = await http.get(f"/api/v1/topics/{name}/messages", params={"after": events[0]["cursor"]})
    assert [message["data"] for message in page.json()["messages"]] == [3]


async def test_the_id_that_a_publisher_gave_is_that_of_the_event(
    server: Server, http: httpx.AsyncClient, name: str
) -> None:
    async with Talker(server) as talker:
        await talker.ask("subscribe", filter=name)
        await http.post("/api/v1/publish", json={"topic": name, "data": 1, "message_id": 'my "own"'})
        assert (await talker.event())["message_id"] == 'my "own"'


async def test_a_kept_value_is_part_of_the_past_and_no_news(server: Server, name: str) -> None:
    async with Talker(server) as talker, mqtt_of(server) as mqtt:
        await mqtt.publish(name, b'"kept"', qos=1, retain=True)
        await talker.subscribe(name)
        assert await talker.ask("ping") == {"type": "pong"}
        await talker.subscribe(name, last_n=1)
        assert await talker.data(1) == ["kept"]


async def test_a_client_is_listed_with_the_others(server: Server, http: httpx.AsyncClient, name: str) -> None:
    async with Talker(server) as talker:
        await talker.ask("subscribe", filter=name)
        (client,) = (await http.get("/api/v1/clients")).json()["clients"]
        assert (client["client_id"], client["door"]) == (talker.client_id, "web")


async def test_topics_are_made_and_deleted_by_rest(
    server: Server, http: httpx.AsyncClient, name: str
) -> None:
    async with Talker(server) as talker:
        assert (await talker.ask("subscribe", topic=name))["code"] == "TOPIC_NOT_FOUND"
        assert (await http.post("/topics", json={"name": name})).status_code == 201
        await talker.subscribe(name)
        assert (await http.delete(f"/topics/{name}")).status_code == 204
        assert (await talker.answer())["message"] == f"Topic '{name}' was deleted"


class Files:
    """A password file and an access list."""

    def __init__(self, folder: Path) -> None:
        self._passwords, self._acl = folder / "passwords", folder / "acl"
        self._passwords.write_text("".join(f"{user}:{stored(b'secret')}\n" for user in ("ann", "bob")))
        self.write("user ann\nboth open/#\nuser bob\nsubscribe #\n")

    def write(self, rules: str) -> None:
        self._acl.write_text(rules)

    def remove_users(self) -> None:
        self._passwords.write_text("")

    @property
    def settings(self) -> AccessSettings:
        return AccessSettings(password_file=str(self._passwords), acl_file=str(self._acl))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def basic(user: str, password: str = "secret") -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


async def test_everyone_has_the_rights_of_its_name(start: Start, files: Files) -> None:
    server = await start(access=files.settings)
    for topic in ("open/a", "shut/a"):
        server.broker.declare_topic(topic)
    async with Talker(server, additional_headers=basic("ann")) as ann:
        await ann.subscribe("open/a")
        await ann.publish("open/a", 1)
        assert await ann.data(1) == [1]
        for request in (
            {"type": "subscribe", "topic": "shut/a"},
            {"type": "subscribe", "topic": "shut/a", "last_n": 5},
            {"type": "subscribe", "topic": "shut/no such topic"},
            {"type": "subscribe", "filter": "#"},
            {"type": "publish", "topic": "shut/a", "data": 1},
            {"type": "publish", "topic": "shut/no such topic", "data": 1},
        ):
            answer = await ann.ask(**request)
            assert (answer["code"], answer["details"]["code"]) == ("NOT_AUTHORIZED", "not-authorized")
        answer = await ann.ask("publish", topic="$SYS/x", data=1)
        assert answer["code"] == "NOT_AUTHORIZED"
        assert server.broker.topics["shut/a"].sequence == 0


@pytest.mark.parametrize("headers", [{}, basic("ann", "wrong"), {"Authorization": "Basic ?"}])
async def test_who_cannot_say_who_it_is_does_not_come_in(
    start: Start, files: Files, headers: dict[str, str]
) -> None:
    server = await start(access=files.settings)
    address = f"ws://127.0.0.1:{port_of(server, 'http')}/ws"
    with pytest.raises(InvalidStatus) as refused:
        await connect(address, additional_headers=headers, proxy=None)
    assert refused.value.response.status_code == 401
    assert not server.broker.sessions


async def test_a_page_says_who_it_is_in_the_query(start: Start, files: Files) -> None:
    server = await start(access=files.settings)
    token = b64encode(b"ann:secret").decode()
    address = f"ws://127.0.0.1:{port_of(server, 'http')}/ws?access_token={token}"
    async with connect(address, proxy=None) as connection:
        assert json.loads(await connection.recv())["type"] == "info"
        (session,) = server.broker.sessions.values()
        assert session.identity.user == "ann"


async def test_rights_that_are_taken_away_count_at_once(start: Start, files: Files) -> None:
    server = await start(access=files.settings)
    server.broker.declare_topic("open/a")
    async with Talker(server, additional_headers=basic("ann")) as ann:
        await ann.subscribe("open/a")
        await ann.publish("open/a", 1)
        await ann.data(1)
        files.write("user ann\npublish other\n")
        server.reload()
        told = await ann.answer()
        assert (told["type"], told["code"]) == ("error", "NOT_AUTHORIZED")
        assert told["details"] == {"code": "not-authorized", "filter": "open/a", "topic": "open/a"}
        server.broker.publish_server("open/a", b"2")
        assert (await ann.ask("publish", topic="open/a", data=3))["code"] == "NOT_AUTHORIZED"
        assert (await ann.ask("unsubscribe", topic="open/a"))["code"] == "NOT_SUBSCRIBED"


async def test_of_several_filters_those_are_told_that_are_taken_away(start: Start, files: Files) -> None:
    server = await start(access=files.settings)
    async with Talker(server, additional_headers=basic("bob")) as bob:
        for filter in ("open/#", "$share/g/left", "kept"):
            await bob.ask("subscribe", filter=filter)
        files.write("user bob\nsubscribe kept\n")
        server.reload()
        told = [(await bob.answer())["details"] for _ in range(2)]
        assert told == [{"code": "not-authorized", "filter": each} for each in ("open/#", "$share/g/left")]
        server.broker.publish_server("kept", b"1")
        assert await bob.data(1) == [1]


async def test_nobody_who_proves_who_it_is_is_written_down(
    start: Start, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start(access=files.settings)
    token = basic("ann")["Authorization"].removeprefix("Basic ")
    address = f"ws://127.0.0.1:{port_of(server, 'http')}/ws"
    caplog.set_level(logging.WARNING, "websockets.client")  # which is the test's own side
    caplog.set_level(logging.DEBUG)
    async with connect(f"{address}?access_token={token}", proxy=None) as socket:
        assert "Connected" in str(await socket.recv())
    async with Talker(server, additional_headers=basic("ann")):
        pass
    assert token not in caplog.text


async def test_who_is_not_known_any_more_is_cut(start: Start, files: Files) -> None:
    server = await start(access=files.settings)
    async with Talker(server, additional_headers=basic("bob")) as bob:
        files.remove_users()
        server.reload()
        with pytest.raises(ConnectionClosed) as closed:
            await bob.read()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == CloseCode.POLICY_VIOLATION
