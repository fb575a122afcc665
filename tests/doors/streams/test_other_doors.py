"""A stream is a topic: what is sent is heard at every door, and what is said at every door is received."""

import asyncio
from typing import Any
from uuid import uuid4

import aiohttp

from penstock.app import Server
from penstock.net.http.settings import HttpSettings
from tests.doors.serving import Start, client_of, mqtt_of, port_of
from tests.doors.streams.people import RECEIVE, SEND, Person, receivers_wait


async def test_a_subscriber_over_mqtt_hears_what_is_sent(server: Server, person: Person, name: str) -> None:
    async with mqtt_of(server) as device:
        await device.subscribe(f"{name}/#")
        message_id = str(uuid4())
        await person.send_all(f"{name}/a", {"celsius": 21}, messageUuid=message_id)
        message = await anext(device.messages)
        assert (str(message.topic), message.payload) == (f"{name}/a", b'{"celsius":21}')
        properties: Any = message.properties
        assert properties is not None
        assert properties.ContentType == "application/json"
    assert await person.take(f"{name}/a") == {"celsius": 21}, "and it is still there for who receives"


async def test_bytes_that_are_sent_are_bytes_elsewhere(server: Server, person: Person, name: str) -> None:
    async with mqtt_of(server) as device:
        await device.subscribe(name)
        await person.send_all(name, {"$bytes": "AP8="})
        message = await anext(device.messages)
    assert message.payload == b"\x00\xff"
    assert not hasattr(message.properties, "ContentType")


async def test_a_send_that_is_never_matched_is_never_heard(server: Server, person: Person, name: str) -> None:
    async with mqtt_of(server) as device:
        await device.subscribe(name)
        body = {"streamId": name, "messageUuid": str(uuid4()), "message": "in vain", "inMemoryStreamSize": 0}
        answer = await person.http.post(SEND, params={"timeout": "20ms"}, json=body)
        assert answer.status_code == 424
        receiving = asyncio.create_task(person.take(name))
        await receivers_wait(server, 1)
        await person.send_all(name, "matched", blockingSendTimeoutSeconds=20)
        assert (await anext(device.messages)).payload == b'"matched"'
        assert await receiving == "matched"


async def test_what_a_device_publishes_reaches_one_who_waits(
    server: Server, person: Person, name: str
) -> None:
    receivers = [asyncio.create_task(person.take(name)) for _ in range(2)]
    await receivers_wait(server, 2)
    async with mqtt_of(server) as device:
        await device.publish(name, b'{"a": 1}', qos=1)
        await device.publish(name, b"\xff\x00", qos=1)
        found = await asyncio.gather(*receivers)
    assert {"a": 1} in found and {"$bytes": "/wA="} in found


async def test_what_a_device_publishes_waits_in_a_stream_that_exists(
    server: Server, person: Person, name: str
) -> None:
    await person.send_all(name, 0, inMemoryStreamSize=2)
    async with mqtt_of(server) as device:
        await device.publish(name, b"1", qos=1)
        await device.publish(name, b"2", qos=1)
    assert [await person.take(name), await person.take(name)] == [1, 2]
    assert await person.finds_nothing(name)


async def test_what_was_published_before_there_was_a_stream_is_not_in_it(
    server: Server, person: Person, name: str
) -> None:
    answer = await person.http.post("/api/v1/publish", json={"topic": name, "data": 1})
    assert answer.status_code == 200
    assert await person.finds_nothing(name)


async def test_what_is_received_has_the_sequence_and_cursor_of_every_door(person: Person, name: str) -> None:
    await person.http.post("/api/v1/publish", json={"topic": name, "data": "before"})
    await person.send_all(name, "sent", "later")
    received = (await person.receive(name, position="true")).json()
    history = f"/api/v1/topics/{name}/messages"
    page = (await person.http.get(history, params={"last": 2})).json()["messages"]
    assert page[0]["data"] == "sent"
    assert [page[0][key] for key in ("sequence", "cursor", "message_id", "published_at", "door")] == [
        *(received[key] for key in ("sequence", "cursor", "messageUuid", "timestamp")),
        "streams",
    ]
    rest = (await person.http.get(history, params={"after": received["cursor"]})).json()["messages"]
    assert [message["data"] for message in rest] == ["later"]


async def test_a_place_in_the_log_of_another_door_is_a_token(stored_person: Person, name: str) -> None:
    await stored_person.send_all(name, 1, writeToDB=True)
    place = (await stored_person.http.get("/api/v1/log/position", params={"filter": name})).json()["cursor"]
    receipt = (await stored_person.http.post("/api/v1/publish", json={"topic": name, "data": 2})).json()
    asked = {"readFromDB": "true", "dbResumeToken": place}
    received = await stored_person.receive(name, **asked)
    assert (received.json()["message"], received.headers["Penstock-Cursor"]) == (2, receipt["cursor"])
    assert "messageUuid" not in received.json()


async def test_a_deleted_value_or_a_retained_one_is_a_message_like_others(
    server: Server, person: Person, name: str
) -> None:
    await person.send_all(name, "x")
    async with mqtt_of(server) as device:
        await device.publish(name, b"kept", qos=1, retain=True)
        await device.publish(name, b"", qos=1, retain=True)
    found = [await person.take(name) for _ in range(3)]
    assert found == ["x", "kept", ""]


async def test_text_of_another_door_is_told_from_a_json_string_by_a_header(
    server: Server, person: Person, name: str
) -> None:
    await person.send_all(name, 0)  # a stream begins
    assert await person.take(name) == 0
    async with mqtt_of(server) as device:
        for payload in (b"text", b'"text"', b"text"):
            await device.publish(name, payload, qos=1)
    first, second = await person.receive(name), await person.receive(name)
    assert first.json()["message"] == second.json()["message"] == "text"
    assert (first.headers.get("Penstock-Encoding"), second.headers.get("Penstock-Encoding")) == ("text", None)
    assert "encoding" not in first.json()
    assert (await person.receive(name, position="true")).json()["encoding"] == "text"


async def test_another_kind_of_client_sends_and_receives(server: Server, name: str) -> None:
    address = f"http://127.0.0.1:{port_of(server, 'http')}"
    async with aiohttp.ClientSession(address) as client, client_of(server) as http:
        receiving = asyncio.create_task(Person(http).take(name))
        await receivers_wait(server, 1)
        body = {"streamId": name, "messageUuid": str(uuid4()), "message": [1]}
        async with client.post(SEND, json=body) as answer:
            assert (answer.status, await answer.json()) == (200, {"errorType": 0})
        assert await receiving == [1]
        await Person(http).send_all(name, [2])
        async with client.get(RECEIVE, params={"streamId": name}) as answer:
            assert (await answer.json())["message"] == [2]


async def test_a_browser_page_that_may_read_may_receive(start: Start, name: str) -> None:
    server = await start(http=HttpSettings(port=(0,), cors_origins=("https://page.example",)))
    page = {"Origin": "https://page.example", "Sec-Fetch-Site": "cross-site"}
    async with client_of(server) as http:
        await Person(http).send_all(name, 1)
        answer = await http.get(RECEIVE, params={"streamId": name}, headers=page)
    assert answer.json()["message"] == 1
    assert answer.headers["access-control-allow-origin"] == "https://page.example"
