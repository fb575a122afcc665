"""A server that is about to stop sends those who wait elsewhere."""

import asyncio
from uuid import uuid4

import httpx

from penstock.app import Server
from tests.doors.serving import Start, client_of
from tests.doors.streams.people import Person, reader_waits, receivers_wait, senders_wait


def is_sent_elsewhere(answer: httpx.Response) -> bool:
    return (
        answer.status_code == 503
        and answer.json() == {"error": "Server is shutting down"}
        and int(answer.headers["retry-after"]) > 0
    )


async def test_a_receive_that_waits_is_answered_at_once(
    start: Start, server: Server, person: Person, name: str
) -> None:
    receiving = asyncio.create_task(person.receive(name, 300))
    await receivers_wait(server, 1)
    await start.stop(server)
    assert is_sent_elsewhere(await receiving)


async def test_a_send_that_waits_is_answered_at_once_and_was_not_published(
    start: Start, server: Server, person: Person, name: str
) -> None:
    sending = asyncio.create_task(person.send(name, 1, inMemoryStreamSize=0, blockingSendTimeoutSeconds=300))
    await senders_wait(server, 1)
    await start.stop(server)
    assert is_sent_elsewhere(await sending)
    assert server.broker.counters.published == 0


async def test_a_reader_at_the_head_of_the_log_is_answered_at_once(
    start: Start, stored_server: Server, stored_person: Person, name: str
) -> None:
    reading = asyncio.create_task(stored_person.receive(name, 300, readFromDB="true"))
    await reader_waits(stored_server, name)
    await start.stop(stored_server)
    assert is_sent_elsewhere(await reading)


async def test_who_comes_while_it_stops_is_sent_elsewhere(stored_server: Server, name: str) -> None:
    stored_server.broker.streams.drain()
    async with client_of(stored_server) as http:
        person = Person(http)
        assert is_sent_elsewhere(await person.receive(name))
        assert is_sent_elsewhere(await person.receive(name, readFromDB="true"))
        assert is_sent_elsewhere(await person.send(name, 1))
        assert is_sent_elsewhere(await person.send(name, 1, writeToDB=True))
        await stored_server.http.close()
        answer = await person.http.post("/streams/send", json={"messageUuid": str(uuid4())})
        assert is_sent_elsewhere(answer)


async def test_what_nobody_received_is_in_the_ledger(
    start: Start, server: Server, person: Person, name: str
) -> None:
    await person.send_all(name, 1, 2)
    assert await person.take(name) == 1
    await start.stop(server)
    rows = [(row.topic, row.first, row.last) for row in server.broker.ledger.rows()]
    assert rows == [(name, 2, 2)]
