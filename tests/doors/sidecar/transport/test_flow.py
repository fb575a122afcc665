"""Clients that read slowly, or not at all: they hold up themselves, and cost a bounded amount of memory."""

import asyncio
import socket

from penstock.doors.sidecar.transport.method import HIGH_WATER_BYTES
from tests.doors.sidecar.transport.conftest import StartServing
from tests.doors.sidecar.transport.serving import (
    ACK,
    COUNT,
    DATA,
    END_STREAM,
    HEADERS,
    SAY,
    SETTINGS,
    TIMEOUT_S,
    WINDOW_UPDATE,
    Counting,
    RawClient,
    Serving,
    frame,
    unary_unary,
)
from tests.doors.sidecar.transport.test_frames import ask, say
from tests.support.waiting import until

KIB = 1024
HUGE_WINDOW = b"\0\4\x7f\xff\xff\xff"
"""A setting: each stream may send as much as it likes."""


def count(stream_id: int, messages: int, size: int) -> bytes:
    """A whole call for a stream of answers."""
    text = b"%d %d" % (messages, size)
    body = b"\0" + len(text).to_bytes(4, "big") + text
    return ask(stream_id, COUNT) + frame(DATA, END_STREAM, stream_id, body)


async def counting(serving: Serving) -> Counting:
    """The handler of the first stream, when it has been told to pause."""
    await until(lambda: serving.echo.handlers, "no call was received")
    handler = serving.echo.handlers[0]
    assert isinstance(handler, Counting)
    await until(lambda: handler.pauses, "reading was not paused")
    return handler


async def take_bytes(client: RawClient, stream_id: int, wanted: int) -> None:
    """Read so much of an answer, and give room for it again."""
    while wanted > 0:
        _, _, taken_id, payload = await client.take_kind(DATA)
        if payload:
            room = len(payload).to_bytes(4, "big")
            client.send(frame(WINDOW_UPDATE, 0, 0, room) + frame(WINDOW_UPDATE, 0, taken_id, room))
        wanted -= len(payload) if taken_id == stream_id else 0


async def test_a_stream_without_room_pauses_its_handler_and_no_other_call(serving: Serving) -> None:
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK) + frame(WINDOW_UPDATE, 0, 0, (10**6).to_bytes(4, "big")))
    client.send(count(1, 1_000, KIB))
    handler = await counting(serving)
    sent = handler.sent
    assert sent * KIB < 65_535 + HIGH_WATER_BYTES + 10 * KIB
    client.send(say(3, b"meanwhile"))
    while (await client.take_kind(DATA))[2] != 3:
        pass
    assert handler.sent == sent
    await client.close()


async def test_a_stream_goes_on_when_there_is_room_and_arrives_whole(serving: Serving) -> None:
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK) + count(1, 2_000, KIB))
    handler = await counting(serving)
    await take_bytes(client, 1, 2_000 * (KIB + 5))
    assert handler.sent == 2_000
    assert handler.resumes == handler.pauses >= 2
    await client.close()


async def test_a_full_socket_pauses_handlers_even_if_windows_are_open(serving: Serving) -> None:
    """And the connection is not read from until it can be written to."""
    client = await small_client(serving)
    client.send(count(1, 20_000, KIB))
    handler = await counting(serving)
    (connection,) = serving.door.connections
    await until(lambda: connection.is_full, "connection is not full")
    await asyncio.sleep(0.2)
    assert connection.is_full
    assert not connection._transport.is_reading()
    assert connection._transport.get_write_buffer_size() < 4 * HIGH_WATER_BYTES
    sent = handler.sent
    await asyncio.sleep(0.2)
    assert handler.sent == sent < 20_000
    await take_bytes(client, 1, 20_000 * (KIB + 5))
    assert handler.sent == 20_000
    assert not connection.is_full
    await client.close()


async def test_who_stalls_costs_others_nothing(serving: Serving) -> None:
    client = await small_client(serving)
    client.send(count(1, 20_000, KIB))
    await counting(serving)
    assert await unary_unary(serving.channel(), SAY)(b"x", timeout=TIMEOUT_S) == b"x"
    await client.close()


async def test_messages_that_are_not_whole_are_refused_when_there_are_too_many_bytes(
    start: StartServing,
) -> None:
    serving = await start(max_unfinished_bytes=1024 * KIB, max_message_bytes=1024 * KIB)
    client = await serving.raw()
    begun = b"\0" + (1000 * KIB).to_bytes(4, "big")
    for stream_id in (1, 3):
        client.send(ask(stream_id, SAY) + frame(DATA, 0, stream_id, begun))
        client.send(frame(DATA, 0, stream_id, bytes(16 * KIB)) * 40)
    assert (await client.take_kind(HEADERS))[2] == 3  # the second, and nothing is said to the first
    client.send(say(5, b"small"))
    assert (await client.take_kind(DATA))[2] == 5
    await client.close()
    await until(lambda: not serving.door.connections, "a connection is still open")
    assert serving.door._unfinished_bytes == 0


async def small_client(serving: Serving) -> RawClient:
    """A client whose streams have all the room they want, and whose socket has hardly any."""
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
    narrow.setblocking(False)
    await asyncio.get_running_loop().sock_connect(narrow, ("127.0.0.1", serving.port))
    client = RawClient(*await asyncio.open_connection(sock=narrow, limit=4 * KIB))
    await until(lambda: serving.door.connections, "no connection was opened")
    (connection,) = serving.door.connections
    theirs = connection._transport.get_extra_info("socket")
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * KIB)
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, HUGE_WINDOW))
    client.send(frame(SETTINGS, ACK) + frame(WINDOW_UPDATE, 0, 0, (2**30).to_bytes(4, "big")))
    return client
