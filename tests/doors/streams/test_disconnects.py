"""Whoever hangs up: a receiver swallows no message, and a sender has sent nothing."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest

from penstock.app import Server
from penstock.core.access.identity import Identity
from penstock.core.streams.send_request import Sending
from tests.doors.serving import port_of
from tests.doors.streams.people import RECEIVE, SEND, Person, receivers_wait, senders_wait
from tests.support.waiting import until

Call = Callable[[bytes], socket.socket]


@pytest.fixture
async def call(server: Server) -> AsyncIterator[Call]:
    """Sends bytes on a connection of their own, and answers the connection."""
    opened: list[socket.socket] = []

    def call(data: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port_of(server, "http")))
        connection.setblocking(False)
        opened.append(connection)
        connection.sendall(data)
        return connection

    yield call
    for connection in opened:
        connection.close()


def receive(stream: str) -> bytes:
    target = f"{RECEIVE}?streamId={stream}&timeoutSeconds=60"
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def blocking_send(stream: str, message: str) -> bytes:
    body = (
        f'{{"streamId": "{stream}", "messageUuid": "{uuid4()}", "message": "{message}",'
        ' "inMemoryStreamSize": 0, "blockingSendTimeoutSeconds": 60}'
    )
    return f"POST {SEND} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def send_now(server: Server, stream: str, payload: bytes) -> None:
    """Send in this turn of the loop, so that the server has read nothing since the last one."""
    outcomes: list[object] = []
    server.broker.streams.send(Sending(stream, payload, str(uuid4()), Identity(None, "")), outcomes.append)
    assert len(outcomes) == 1


async def test_a_receiver_that_hung_up_leaves_the_line(
    server: Server, person: Person, call: Call, name: str
) -> None:
    connection = call(receive(name))
    await receivers_wait(server, 1)
    connection.close()
    await receivers_wait(server, 0)
    await person.send_all(name, "x")
    assert await person.take(name) == "x"


async def test_a_receiver_whose_end_was_not_read_yet_gets_nothing_either(
    server: Server, person: Person, call: Call, name: str
) -> None:
    connection = call(receive(name))
    await receivers_wait(server, 1)
    connection.close()
    send_now(server, name, b'"x"')
    assert await person.take(name) == "x"


async def test_a_receiver_that_was_cut_gets_nothing_either(
    server: Server, person: Person, call: Call, name: str
) -> None:
    connection = call(receive(name))
    await receivers_wait(server, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
    connection.close()
    send_now(server, name, b'"x"')
    assert await person.take(name) == "x"


async def test_the_next_in_line_gets_what_the_one_who_hung_up_did_not(
    server: Server, person: Person, call: Call, name: str
) -> None:
    connection = call(receive(name))
    await receivers_wait(server, 1)
    patient = asyncio.create_task(person.take(name))
    await receivers_wait(server, 2)
    connection.close()
    send_now(server, name, b"1")
    assert await patient == 1


async def test_what_nobody_took_stays_before_what_comes_later(
    server: Server, person: Person, call: Call, name: str
) -> None:
    connection = call(receive(name))
    await receivers_wait(server, 1)
    connection.close()
    send_now(server, name, b"1")
    send_now(server, name, b"2")
    assert [await person.take(name), await person.take(name)] == [1, 2]


async def test_a_sender_that_hung_up_has_sent_nothing(
    server: Server, person: Person, call: Call, name: str
) -> None:
    connection = call(blocking_send(name, "first"))
    await senders_wait(server, 1)
    connection.close()
    await senders_wait(server, 0)
    sending = asyncio.create_task(
        person.send(name, "second", inMemoryStreamSize=0, blockingSendTimeoutSeconds=20)
    )
    received = await person.receive(name)
    assert (received.json()["message"], received.headers["Penstock-Sequence"]) == ("second", "1")
    assert (await sending).status_code == 200


async def test_a_receive_behind_another_takes_nothing_before_its_turn(
    server: Server, person: Person, call: Call, name: str
) -> None:
    await person.send_all(f"{name}/b", "x")
    call(receive(f"{name}/a") + receive(f"{name}/b"))
    await receivers_wait(server, 1)
    assert await person.take(f"{name}/b", 0) == "x"


async def test_receives_on_one_connection_are_answered_in_their_order(
    server: Server, person: Person, call: Call, name: str
) -> None:
    await person.send_all(f"{name}/b", "second")
    connection = call(receive(f"{name}/a") + receive(f"{name}/b"))
    await receivers_wait(server, 1)
    await person.send_all(f"{name}/a", "first")
    loop, data = asyncio.get_running_loop(), b""
    while b"second" not in data:
        data += await loop.sock_recv(connection, 4096)
    assert data.index(b"first") < data.index(b"second")


async def test_nothing_is_left_of_many_who_hung_up(
    server: Server, person: Person, call: Call, name: str
) -> None:
    connections = [call(receive(name)) for _ in range(50)]
    await receivers_wait(server, 50)
    for connection in connections:
        connection.close()
    send_now(server, name, b"1")
    await receivers_wait(server, 0)
    assert await person.take(name, 0) == 1
    await until(lambda: len(server.http.connections) == 1, "there is not exactly one connection")


async def all_left(server: Server, others: int = 1) -> None:
    """Until nobody has a connection but so many."""
    async with asyncio.timeout(20):
        await until(lambda: len(server.http.connections) == others, "the number of connections is wrong")


async def test_nothing_is_left_of_a_receiver_that_hung_up_before_its_message_was_handed_over(
    server: Server, person: Person, call: Call, name: str
) -> None:
    await person.send_all(name, "x")
    for _ in range(20):
        call(receive(name)).close()
    await until(
        lambda: server.broker.streams.counters.given_back == 20, "not all 20 messages were given back"
    )
    await all_left(server)
    assert await person.take(name, 0) == "x"


async def test_nothing_is_left_of_a_receiver_that_a_send_waited_for_in_vain(
    server: Server, person: Person, call: Call, name: str
) -> None:
    sender = call(blocking_send(name, "x"))
    await senders_wait(server, 1)
    call(receive(name)).close()
    await all_left(server, 1)
    assert server.broker.counters.published == 0
    assert await person.take(name, 0) == "x"
    assert (await asyncio.get_running_loop().sock_recv(sender, 4096)).startswith(b"HTTP/1.1 200")


async def test_nothing_is_left_of_a_receiver_that_is_not_read_when_its_message_comes(
    server: Server, person: Person, call: Call, name: str
) -> None:
    connection = call(receive(name) * (2 * server.settings.http.max_pipelined))
    await receivers_wait(server, 1)
    connection.close()
    send_now(server, name, b"1")
    await all_left(server, 0)
    assert await person.take(name, 0) == 1


async def test_who_closes_its_direction_alone_counts_as_gone(
    server: Server, person: Person, call: Call, name: str
) -> None:
    await person.send_all(name, "x")
    connection = call(receive(name))
    connection.shutdown(socket.SHUT_WR)
    assert await asyncio.get_running_loop().sock_recv(connection, 4096) == b""
    assert await person.take(name, 0) == "x"


async def test_a_send_is_not_matched_with_a_receiver_that_hung_up(
    server: Server, person: Person, call: Call, name: str
) -> None:
    connection = call(receive(name))
    await receivers_wait(server, 1)
    connection.close()
    outcomes: list[object] = []
    sending = Sending(name, b"1", str(uuid4()), Identity(None, ""), 0, 60.0)
    server.broker.streams.send(sending, outcomes.append)
    assert (outcomes, server.broker.counters.published) == ([], 0)
    assert await person.take(name, 0) == 1
    assert len(outcomes) == 1
