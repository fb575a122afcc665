"""What clients of iPubSub rely on, story by story, at one node."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from penstock.app import Server
from penstock.common.cursor import Cursor
from penstock.core.settings import StreamSettings
from tests.doors.serving import Start, client_of
from tests.doors.streams.people import SEND, TIMEOUT, Person, receivers_wait, senders_wait

MESSAGES: tuple[Any, ...] = (
    "text \u00e9 \U0001f600",
    "",
    12.5,
    -(2**63),
    True,
    None,
    [1, "two", [3]],
    {"a": {"b": [None, {"c": 1}]}},
    {},
    {"$bytes": "AP8="},
)


async def test_what_is_sent_is_received_once(person: Person, name: str) -> None:
    message_id, before = str(uuid4()), datetime.now(UTC)
    answer = await person.send(name, {"text": "hello"}, messageUuid=message_id)
    assert (answer.status_code, answer.json()) == (200, {"errorType": 0})
    answer = await person.receive(name)
    received = answer.json()
    assert (received["messageUuid"], received["message"]) == (message_id, {"text": "hello"})
    assert received["timestamp"].endswith("Z")
    assert before <= datetime.fromisoformat(received["timestamp"]) <= datetime.now(UTC)
    assert set(received) == {"messageUuid", "message", "timestamp"}  # a strict decoder takes no other
    assert answer.headers["Penstock-Sequence"] == "1"
    assert Cursor.decode(answer.headers["Penstock-Cursor"])
    assert await person.finds_nothing(name)


async def test_position_is_in_keys_on_request(person: Person, name: str) -> None:
    await person.send_all(name, 1, 2)
    first, second = [await person.receive(name, position=asked) for asked in ("true", "false")]
    assert set(first.json()) == {"messageUuid", "message", "timestamp", "sequence", "cursor"}
    assert first.headers["Penstock-Cursor"] == first.json()["cursor"]
    assert (first.headers["Penstock-Sequence"], first.json()["sequence"]) == ("1", 1)
    assert set(second.json()) == {"messageUuid", "message", "timestamp"}
    refused = await person.receive(name, position="perhaps")
    assert (refused.status_code, refused.json()) == (400, {"error": "invalid position"})


async def test_a_circular_buffer_keeps_the_newest(person: Person, name: str) -> None:
    await person.send_all(name, *range(5), inMemoryStreamSize=3)
    assert [await person.take(name) for _ in range(3)] == [2, 3, 4]
    assert await person.finds_nothing(name)


async def test_the_first_send_decides_how_much_is_kept(person: Person, name: str) -> None:
    await person.send_all(name, 0, inMemoryStreamSize=2)
    await person.send_all(name, 1, 2, 3, inMemoryStreamSize=100)
    assert [await person.take(name), await person.take(name)] == [2, 3]
    assert await person.finds_nothing(name)


async def test_a_hundred_messages_are_kept_unless_it_is_said_otherwise(person: Person, name: str) -> None:
    await person.send_all(name, *range(102))
    assert [await person.take(name) for _ in range(100)] == list(range(2, 102))
    assert await person.finds_nothing(name)


async def test_a_blocking_send_that_finds_no_room_fails_and_is_never_published(
    person: Person, name: str
) -> None:
    await person.send_all(name, 1, 2, inMemoryStreamSize=2)
    answer = await person.send(name, 3, blockingSendTimeoutSeconds=1)
    assert (answer.status_code, answer.json()) == (424, TIMEOUT)
    assert [await person.take(name), await person.take(name)] == [1, 2]
    assert await person.finds_nothing(name)


async def test_a_blocking_send_waits_for_room(server: Server, person: Person, name: str) -> None:
    await person.send_all(name, 1, inMemoryStreamSize=1, blockingSendTimeoutSeconds=20)
    waiting = asyncio.create_task(person.send(name, 2, blockingSendTimeoutSeconds=20))
    await senders_wait(server, 1)
    assert await person.take(name) == 1
    assert (await waiting).status_code == 200
    assert await person.take(name) == 2


async def test_a_send_without_a_buffer_waits_for_its_receiver(
    server: Server, person: Person, name: str
) -> None:
    sending = asyncio.create_task(person.send(name, "x", inMemoryStreamSize=0, blockingSendTimeoutSeconds=20))
    await senders_wait(server, 1)
    assert not sending.done()
    assert await person.take(name) == "x"
    assert (await sending).status_code == 200


async def test_a_receiver_waits_for_a_send_without_a_buffer(
    server: Server, person: Person, name: str
) -> None:
    receiving = asyncio.create_task(person.take(name))
    await receivers_wait(server, 1)
    await person.send_all(name, "x", inMemoryStreamSize=0, blockingSendTimeoutSeconds=20)
    assert await receiving == "x"


async def test_a_send_that_is_matched_with_nobody_leaves_nothing(person: Person, name: str) -> None:
    body = {"streamId": name, "messageUuid": str(uuid4()), "message": "x", "inMemoryStreamSize": 0}
    answer = await person.http.post(SEND, params={"timeout": "20ms"}, json=body)
    assert (answer.status_code, answer.json()) == (424, TIMEOUT)
    assert await person.finds_nothing(name)


async def test_without_a_buffer_a_send_has_to_wait(person: Person, name: str) -> None:
    answer = await person.send(name, "x", inMemoryStreamSize=0)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}


async def test_many_senders_and_receivers_share_each_message_once(person: Person, name: str) -> None:
    async def receive_all() -> list[Any]:
        found = []
        while (message := await person.take(name)) != "end":
            found.append(message)
        return found

    receivers = [asyncio.create_task(receive_all()) for _ in range(3)]
    how = {"inMemoryStreamSize": 10, "blockingSendTimeoutSeconds": 20}
    await asyncio.gather(*(person.send_all(name, number, **how) for number in range(20)))
    await person.send_all(name, "end", "end", "end", **how)
    found = [message for messages in await asyncio.gather(*receivers) for message in messages]
    assert Counter(found) == Counter(range(20))


async def test_any_json_value_is_a_message(person: Person, name: str) -> None:
    for message in MESSAGES:
        await person.send_all(name, message)
        assert await person.take(name) == message


async def test_it_tells_that_it_is_healthy(person: Person) -> None:
    answer = await person.http.get("/api/v1/streams/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_the_root_names_the_service(person: Person) -> None:
    assert "iPubSub" in (await person.http.get("/")).text


async def test_a_stream_that_nobody_made_has_nothing(person: Person, name: str) -> None:
    answer = await person.receive(name, 1)
    assert (answer.status_code, answer.json()) == (424, TIMEOUT)


async def test_an_empty_send_is_refused(person: Person) -> None:
    answer = await person.http.post(SEND)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid request schema")


async def test_receivers_are_served_in_the_order_in_which_they_came(
    server: Server, person: Person, name: str
) -> None:
    receivers = []
    for number in range(4):
        receivers.append(asyncio.create_task(person.take(name)))
        await receivers_wait(server, number + 1)
    await person.send_all(name, *range(4))
    assert await asyncio.gather(*receivers) == [0, 1, 2, 3]


async def test_senders_are_served_in_the_order_in_which_they_came(
    server: Server, person: Person, name: str
) -> None:
    senders = []
    for number in range(4):
        how = {"inMemoryStreamSize": 0, "blockingSendTimeoutSeconds": 20}
        senders.append(asyncio.create_task(person.send_all(name, number, **how)))
        await senders_wait(server, number + 1)
    assert [await person.take(name) for _ in range(4)] == [0, 1, 2, 3]
    await asyncio.gather(*senders)


async def test_a_receiver_waits_half_a_minute_unless_it_says_how_long(
    server: Server, person: Person, name: str
) -> None:
    receiving = asyncio.create_task(person.http.get("/api/v1/streams/receive", params={"streamId": name}))
    await receivers_wait(server, 1)
    await person.send_all(name, "x")
    assert (await receiving).json()["message"] == "x"


async def test_nobody_waits_longer_than_the_longest_wait(start: Start, tmp_path: Path, name: str) -> None:
    patience = StreamSettings(max_timeout_s=0.05)
    server = await start(streams=patience, data_dir=str(tmp_path / "data"))
    async with client_of(server) as http:
        person = Person(http)
        assert (await person.receive(name, 2**31)).json() == TIMEOUT
        assert (await person.receive(name, 2**31, readFromDB="true")).json() == TIMEOUT
        how = {"inMemoryStreamSize": 0, "blockingSendTimeoutSeconds": 2**31 - 1}
        assert (await person.send(f"{name}/other", 1, **how)).json() == TIMEOUT


async def test_how_long_a_receiver_waits_by_default_is_a_setting(start: Start, name: str) -> None:
    server = await start(streams=StreamSettings(default_timeout_s=0.05))
    async with client_of(server) as http:
        answer = await http.get("/api/v1/streams/receive", params={"streamId": name})
    assert (answer.status_code, answer.json()) == (424, TIMEOUT)


@pytest.mark.parametrize("wait", [-5, 0])
async def test_less_than_nothing_is_no_time_to_wait(person: Person, name: str, wait: int) -> None:
    assert (await person.receive(name, wait)).status_code == 424
    await person.send_all(name, "x", blockingSendTimeoutSeconds=wait)
    assert await person.take(name, wait) == "x"


async def test_the_older_paths_mean_the_same(person: Person, name: str) -> None:
    body = {"streamId": name, "messageUuid": str(uuid4()), "message": 1}
    assert (await person.http.post("/streams/send", json=body)).json() == {"errorType": 0}
    answer = await person.http.get("/streams/receive", params={"streamId": name, "timeout": "30s"})
    assert answer.json()["message"] == 1
    answer = await person.http.get("/streams/receive", params={"streamId": name, "timeout": "10ms"})
    assert (answer.status_code, answer.json()) == (424, TIMEOUT)
    full = await person.http.post(
        "/streams/send", params={"timeout": "10ms"}, json=body | {"inMemoryStreamSize": 0}
    )
    assert full.status_code == 200, "the stream exists, so it keeps what it kept"


@pytest.mark.parametrize("number", ["1e999", "9" * 5_000, "1.0000000000000000000000001", "-0"])
async def test_a_number_comes_back_as_it_was_written(person: Person, name: str, number: str) -> None:
    body = f'{{"streamId":"{name}","messageUuid":"{uuid4()}","message":[{number}]}}'
    assert (await person.http.post(SEND, content=body)).status_code == 200
    assert f'"message":[{number}],' in (await person.receive(name, 0)).text
