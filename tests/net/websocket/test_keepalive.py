"""Who is silent is pinged, who stays silent is cut; who speaks, reads or cannot be heard is left alone."""

import asyncio
import socket

from structlog.testing import capture_logs
from websockets.frames import Opcode

from penstock.wire.websocket.encoding import text_frame
from tests.net.websocket.message_peers import MessageHall, frame
from tests.net.websocket.peers import MIB, request_bytes

PING, PONG, TEXT = Opcode.PING, Opcode.PONG, Opcode.TEXT


async def test_a_silent_peer_is_pinged_and_lives_if_it_answers(forum: MessageHall) -> None:
    await forum.open(ping_s=20, ping_timeout_s=10)
    client = await forum.enter()
    for _ in range(5):
        forum.scheduler.advance(22)
        assert await client.read_frame() == (PING, b"")
        client.send(frame(b"", PONG))
        assert await client.fence() == []
    assert forum.door.losses == []


async def test_a_peer_that_answers_nothing_is_cut(forum: MessageHall) -> None:
    await forum.open(ping_s=20, ping_timeout_s=10)
    client = await forum.enter()
    forum.scheduler.advance(22)
    assert await client.read_frame() == (PING, b"")
    forum.scheduler.advance(7)
    assert not forum.door.socket.is_closing()
    with capture_logs() as lines:
        forum.scheduler.advance(6)
    assert [line["event"] for line in lines] == ["no pong"]
    assert await client.is_cut()
    await forum.until(lambda: bool(forum.door.losses))


async def test_a_peer_that_speaks_is_not_pinged(forum: MessageHall) -> None:
    await forum.open(ping_s=20, ping_timeout_s=10)
    client = await forum.enter()
    for _ in range(10):
        forum.scheduler.advance(15)
        client.send(frame(b"here"))
        assert await client.fence() == []


async def test_any_word_is_an_answer_to_a_ping(forum: MessageHall) -> None:
    await forum.open(ping_s=20, ping_timeout_s=10)
    client = await forum.enter()
    forum.scheduler.advance(22)
    client.send(frame(b"still here"))
    assert await client.fence() == [(PING, b"")]
    forum.scheduler.advance(15)
    assert await client.fence() == []


async def test_nobody_is_pinged_if_that_is_switched_off(forum: MessageHall) -> None:
    await forum.open(ping_s=0)
    client = await forum.enter()
    forum.scheduler.advance(10_000)
    assert await client.fence() == []


async def test_who_is_not_read_from_is_not_blamed_for_its_silence(forum: MessageHall) -> None:
    await forum.open(ping_s=20, ping_timeout_s=10)
    client = await forum.enter()
    forum.scheduler.advance(22)
    forum.door.socket.pause_reading()
    client.send(frame(b"", PONG))
    forum.scheduler.advance(500)
    assert not forum.door.socket.is_closing()
    forum.door.socket.resume_reading()
    forum.scheduler.advance(5)  # before the loop had time to read
    assert await client.fence() == [(PING, b"")]


async def test_a_pause_that_ended_before_anyone_looked_counts_as_well(forum: MessageHall) -> None:
    await forum.open(ping_s=20, ping_timeout_s=10)
    client = await forum.enter()
    forum.scheduler.advance(22)
    forum.door.socket.pause_reading()
    forum.scheduler.advance(6)
    forum.door.socket.resume_reading()
    forum.scheduler.advance(6)
    assert not forum.door.socket.is_closing()
    assert await client.fence() == [(PING, b"")]


async def test_a_slow_reader_is_given_time_while_it_reads(forum: MessageHall) -> None:
    await forum.open(ping_s=20, ping_timeout_s=10)
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", forum.port)) as client:  # reads nothing by itself
        client.setblocking(False)
        await loop.sock_sendall(client, request_bytes("/ws"))
        await forum.until(lambda: bool(forum.doors))
        door = forum.door
        door.socket.write(text_frame(bytes(64 * MIB)))
        forum.scheduler.advance(22)
        for _ in range(3):
            before = door.socket.get_write_buffer_size()
            while door.socket.get_write_buffer_size() >= before:
                await loop.sock_recv(client, MIB)
            forum.scheduler.advance(12)
            assert not door.socket.is_closing()
        forum.scheduler.advance(12)
        assert door.socket.is_closing()


async def test_who_is_not_read_from_and_reads_nothing_is_cut(forum: MessageHall) -> None:
    await forum.open(ping_s=20, ping_timeout_s=10)
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", forum.port)) as client:
        client.setblocking(False)
        await loop.sock_sendall(client, request_bytes("/ws"))
        await forum.until(lambda: bool(forum.doors))
        door = forum.door
        door.socket.write(text_frame(bytes(64 * MIB)))
        door.socket.pause_reading()
        forum.scheduler.advance(22)
        for _ in range(3):
            before = door.socket.get_write_buffer_size()
            while door.socket.get_write_buffer_size() >= before:
                await loop.sock_recv(client, MIB)
            forum.scheduler.advance(21)
            assert not door.socket.is_closing()
        with capture_logs() as lines:
            forum.scheduler.advance(21)
        assert [line["event"] for line in lines] == ["nothing read from us"]
        await forum.until(lambda: bool(door.losses))


async def test_a_connection_that_closes_is_not_pinged(forum: MessageHall) -> None:
    await forum.open(ping_s=20, ping_timeout_s=10)
    client = await forum.enter()
    forum.door.socket.close()
    forum.scheduler.advance(100)
    assert (await client.read_frame())[0] is Opcode.CLOSE
    client.send(frame(b"\x03\xe8", Opcode.CLOSE))
    assert await client.read_rest() == b""


async def test_the_clock_stands_still_when_nobody_is_there(forum: MessageHall) -> None:
    await forum.open(ping_s=20)
    clients = [await forum.enter() for _ in range(10)]
    forum.scheduler.advance(1)
    for client in clients:
        client.writer.transport.abort()
    await forum.until(lambda: all(door.losses for door in forum.doors))
    forum.scheduler.advance(2)
    assert forum.scheduler.timers == 0
