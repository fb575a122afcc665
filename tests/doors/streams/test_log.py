"""Sending into the log and receiving from it: each reader has a token, and takes nothing away."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from penstock.app import Server
from penstock.common.cursor import Cursor, Position
from penstock.config import Settings
from penstock.core.settings import LogSettings
from penstock.doors.mqtt.settings import MqttSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.net.http.settings import HttpSettings
from tests.doors.serving import EVERYTHING, Start, client_of
from tests.doors.streams.people import TIMEOUT, Person, reader_waits, receivers_wait
from tests.support.clock import ManualClock


async def read(person: Person, stream: str, token: str = "", wait: int = 0, **more: Any) -> httpx.Response:
    """Ask for what the log has after a token."""
    asked = {"readFromDB": "true", "dbResumeToken": token, **more}
    return await person.receive(stream, wait, **asked)


async def read_all(person: Person, stream: str, token: str = "", **more: Any) -> list[Any]:
    """One message after the other until there is no more."""
    found = []
    while (answer := await read(person, stream, token, **more)).status_code == 200:
        found.append(answer.json()["message"])
        token = answer.json()["dbResumeToken"]
    assert (answer.status_code, answer.json()) == (424, TIMEOUT)
    return found


async def test_every_reader_reads_everything_from_the_oldest_on(stored_person: Person, name: str) -> None:
    await stored_person.send_all(name, 1, 2, 3, writeToDB=True)
    for _ in range(2):
        assert await read_all(stored_person, name) == [1, 2, 3]


async def test_a_token_is_where_its_reader_was(stored_person: Person, name: str) -> None:
    await stored_person.send_all(name, 1, 2, writeToDB=True)
    answer = await read(stored_person, name)
    first = answer.json()
    assert set(first) == {"messageUuid", "message", "timestamp", "dbResumeToken"}
    assert (first["message"], answer.headers["Penstock-Sequence"]) == (1, "1")
    for _ in range(2):
        second = (await read(stored_person, name, first["dbResumeToken"], position="true")).json()
        assert (second["message"], second["sequence"]) == (2, 2)


async def test_the_cursor_of_a_message_is_a_token(stored_person: Person, name: str) -> None:
    await stored_person.send_all(name, 1, 2, 3, writeToDB=True)
    cursor = (await read(stored_person, name)).headers["Penstock-Cursor"]
    assert await read_all(stored_person, name, cursor) == [2, 3]


async def test_messages_of_others_in_between_are_passed_over(stored_person: Person, name: str) -> None:
    for number in range(5):
        await stored_person.send_all(name, number, writeToDB=True)
        await stored_person.send_all(f"{name}/other", "x", "y", writeToDB=True)
    assert await read_all(stored_person, name) == [0, 1, 2, 3, 4]


async def test_a_limit_gives_a_list_and_one_token(stored_person: Person, name: str) -> None:
    await stored_person.send_all(name, *range(5), writeToDB=True)
    page = (await read(stored_person, name, limit=3)).json()
    assert set(page) == {"messages", "dbResumeToken"}
    assert [each["message"] for each in page["messages"]] == [0, 1, 2]
    assert {"messageUuid", "timestamp", "sequence", "cursor"} < set(page["messages"][0])
    rest = (await read(stored_person, name, page["dbResumeToken"], limit=3)).json()
    assert [each["message"] for each in rest["messages"]] == [3, 4]
    answer = await read(stored_person, name, rest["dbResumeToken"], limit=3)
    assert (answer.status_code, answer.json()) == (424, TIMEOUT)


async def test_a_limit_of_one_is_a_list_too(stored_person: Person, name: str) -> None:
    await stored_person.send_all(name, 1, writeToDB=True)
    page = (await read(stored_person, name, limit=1)).json()
    assert [each["message"] for each in page["messages"]] == [1]


async def test_a_page_ends_with_its_bytes(stored_person: Person, name: str) -> None:
    await stored_person.send_all(name, *(f"{number}{'x' * 400_000}" for number in range(4)), writeToDB=True)
    page = (await read(stored_person, name, limit=1000)).json()
    assert len(page["messages"]) == 3
    rest = (await read(stored_person, name, page["dbResumeToken"], limit=1000)).json()
    assert [each["message"][0] for each in rest["messages"]] == ["3"]


async def test_a_reader_at_the_head_waits_for_the_next_message(
    stored_server: Server, stored_person: Person, name: str
) -> None:
    await stored_person.send_all(name, 1, writeToDB=True)
    token = (await read(stored_person, name)).json()["dbResumeToken"]
    readers = [asyncio.create_task(read(stored_person, name, token, 20)) for _ in range(2)]
    readers.append(asyncio.create_task(read(stored_person, name, token, 20, limit=5)))
    await reader_waits(stored_server, name, 3)
    await stored_person.send_all(name, 2, writeToDB=True)
    one, other, page = [(await reader).json() for reader in readers]
    assert (one["message"], other["message"]) == (2, 2)
    assert [each["message"] for each in page["messages"]] == [2]


async def test_a_reader_waits_for_the_first_message_of_a_stream(
    stored_server: Server, stored_person: Person, name: str
) -> None:
    reader = asyncio.create_task(read(stored_person, name, wait=20))
    await reader_waits(stored_server, name)
    await stored_person.send_all(name, 1, writeToDB=True)
    assert (await reader).json()["message"] == 1


async def test_a_reader_that_hung_up_is_forgotten(
    stored_server: Server, stored_person: Person, name: str
) -> None:
    reader = asyncio.create_task(read(stored_person, name, wait=20))
    await reader_waits(stored_server, name)
    reader.cancel()
    await reader_waits(stored_server, name, 0)


async def test_what_is_sent_twice_under_one_id_is_stored_once(stored_person: Person, name: str) -> None:
    message_id = str(uuid4())
    await stored_person.send_all(name, "a", "b", writeToDB=True, messageUuid=message_id)
    assert await read_all(stored_person, name) == ["a"]


async def test_a_message_a_token_and_an_id_outlive_the_server(
    start: Start, tmp_path: Path, name: str
) -> None:
    data_dir, message_id = str(tmp_path / "data"), str(uuid4())
    server = await start(data_dir=data_dir, log=EVERYTHING)
    async with client_of(server) as http:
        await Person(http).send_all(name, 1, writeToDB=True)
        await Person(http).send_all(name, 2, writeToDB=True, messageUuid=message_id)
        token = (await read(Person(http), name)).json()["dbResumeToken"]
    await start.stop(server)
    server = await start(data_dir=data_dir, log=EVERYTHING)
    async with client_of(server) as http:
        await Person(http).send_all(name, "again", writeToDB=True, messageUuid=message_id)
        await Person(http).send_all(name, 3, writeToDB=True)
        assert await read_all(Person(http), name, token) == [2, 3]
        assert await read_all(Person(http), name) == [1, 2, 3]


async def test_what_is_sent_into_the_log_is_stored_whatever_else_is_captured(
    start: Start, tmp_path: Path, name: str
) -> None:
    data_dir, log = str(tmp_path / "data"), LogSettings(capture=("nothing/of/this",))
    server = await start(data_dir=data_dir, log=log)
    async with client_of(server) as http:
        await Person(http).send_all(name, 1, 2, writeToDB=True)
    await start.stop(server)
    server = await start(data_dir=data_dir, log=log)
    async with client_of(server) as http:
        assert await read_all(Person(http), name) == [1, 2]


async def test_what_cannot_be_is_refused_before_it_is_stored(stored_person: Person, name: str) -> None:
    for wrong in ({"inMemoryStreamSize": -1}, {"dbTTLSeconds": 0}, {"messageUuid": "x"}):
        answer = await stored_person.send(name, 1, writeToDB=True, **wrong)
        assert (answer.status_code, list(answer.json())) == (400, ["error"]), wrong
    assert await read_all(stored_person, name) == []


async def test_what_is_stored_is_also_for_who_waits(
    stored_server: Server, stored_person: Person, name: str
) -> None:
    receiver = asyncio.create_task(stored_person.take(name))
    await receivers_wait(stored_server, 1)
    await stored_person.send_all(name, "x", writeToDB=True)
    assert await receiver == "x"
    assert await read_all(stored_person, name) == ["x"]


@pytest.fixture
async def timed(tmp_path: Path) -> AsyncIterator[tuple[Person, ManualClock]]:
    """Somebody at a server with a data directory, and the time there."""
    clock = ManualClock()
    settings = Settings(
        mqtt=MqttSettings(port=0),
        http=HttpSettings(port=(0,)),
        sidecar=SidecarSettings(port=None),
        data_dir=str(tmp_path / "data"),
        log=EVERYTHING,
    )
    server = Server(settings, clock)
    await server.start()
    async with client_of(server, headers={"Connection": "close"}) as http:
        yield Person(http), clock
    await server.stop()


async def test_a_message_is_stored_for_as_long_as_its_sender_says(
    timed: tuple[Person, ManualClock], name: str
) -> None:
    person, clock = timed
    token = (await person.http.get("/api/v1/log/position", params={"filter": name})).json()["cursor"]
    await person.send_all(name, "short", writeToDB=True, dbTTLSeconds=10)
    await person.send_all(name, "a day", writeToDB=True)
    await person.send_all(name, "long", writeToDB=True, dbTTLSeconds=100_000)
    assert await read_all(person, name) == ["short", "a day", "long"]
    clock.advance(11)
    late = await read(person, name, token)
    assert late.json()["message"] == "a day" and "missing" not in late.json()
    missing = [{"first": 1, "last": 1, "reason": "expired"}]
    assert json.loads(late.headers["Penstock-Missing"]) == missing
    assert (await read(person, name, token, position="true")).json()["missing"] == missing
    clock.advance(86_400)
    assert await read_all(person, name) == ["long"]


async def test_what_is_missing_is_told_with_the_page_that_passes_it(
    timed: tuple[Person, ManualClock], name: str
) -> None:
    person, clock = timed
    await person.send_all(name, 1, 2, 3, writeToDB=True)
    await person.send_all(name, 4, writeToDB=True, dbTTLSeconds=10)
    await person.send_all(name, 5, writeToDB=True)
    clock.advance(11)
    first = (await read(person, name, limit=2)).json()
    assert [each["message"] for each in first["messages"]] == [1, 2]
    assert "missing" not in first
    second = (await read(person, name, first["dbResumeToken"], limit=2)).json()
    assert [each["message"] for each in second["messages"]] == [3, 5]
    assert second["missing"] == [{"first": 4, "last": 4, "reason": "expired"}]


async def test_a_token_that_cannot_be_read_is_refused(stored_person: Person, name: str) -> None:
    for token in ("x", "!!!", "AAAA", "\u00e9", "A" * 5_000):
        answer = await read(stored_person, name, token)
        assert (answer.status_code, list(answer.json())) == (400, ["error"]), token[:20]


async def test_a_token_of_another_log_or_of_the_future_is_refused(
    stored_server: Server, stored_person: Person, name: str
) -> None:
    history = stored_server.broker.history
    foreign = Cursor((Position("00" * 8, 1, 0),)).encode()
    for token in (foreign, history.cursor(history.head + 1_000).encode()):
        answer = await read(stored_person, name, token)
        assert (answer.status_code, list(answer.json())) == (400, ["error"])


async def test_without_a_data_directory_there_is_no_log_to_send_to_or_to_receive_from(
    person: Person, name: str
) -> None:
    sent = await person.send(name, 1, writeToDB=True)
    received = await read(person, name)
    for answer in (sent, received):
        assert answer.status_code == 400
        assert "data directory" in answer.json()["error"]


async def test_the_log_is_not_read_if_that_is_said(stored_person: Person, name: str) -> None:
    for word in ("false", "0", "False", ""):
        await stored_person.send_all(name, word)
        assert await stored_person.take(name, 0, readFromDB=word, dbResumeToken="") == word
        assert await stored_person.finds_nothing(name)


@pytest.mark.parametrize("wait", [0, 20])
async def test_a_reader_makes_no_topic(
    stored_server: Server, stored_person: Person, name: str, wait: int
) -> None:
    reading = asyncio.create_task(read(stored_person, name, wait=wait))
    if wait:
        await reader_waits(stored_server, name)
        assert not stored_server.broker.has_topic(name)
        await stored_person.send_all(name, 1, writeToDB=True)
    assert (await reading).status_code == (200 if wait else 424)
    assert stored_server.broker.has_topic(name) == bool(wait)
    assert name not in stored_server.broker.topics.expected


async def test_a_message_is_stored_once_however_its_id_is_written(stored_person: Person, name: str) -> None:
    written = str(uuid4()).upper()
    for spelling in (
        written,
        written.lower(),
        written.replace("-", ""),
        f"urn:uuid:{written}",
        f"{{{written}}}",
    ):
        await stored_person.send_all(name, spelling, messageUuid=spelling, writeToDB=True)
    answer = (await read(stored_person, name, limit=10)).json()
    assert [(each["message"], each["messageUuid"]) for each in answer["messages"]] == [(written, written)]
