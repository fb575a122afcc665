"""An open WebSocket is to its door what a socket would be: bytes, back-pressure, and every way to end."""

import asyncio
import socket
import ssl
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from websockets.frames import Opcode

from penstock.net.websocket import frame_socket
from tests.net.websocket.peers import MIB, Client, Hall, Recorder, frame, request_bytes
from tests.support.certificates import Authority

CLOSE, CONT, PING, TEXT = Opcode.CLOSE, Opcode.CONT, Opcode.PING, Opcode.TEXT
BINARY = Opcode.BINARY
BYE = struct.pack("!H", 1000)


def echo(door: Recorder, data: bytes) -> None:
    door.transport.write(data)


def stuff(door: Recorder) -> int:
    """Write until the transport wants no more; answer how much that was."""
    written = 0
    while not door.is_full:
        door.transport.write(bytes(64 * 1024))
        written += 64 * 1024
    return written


def reset(client: Client) -> None:
    """End the connection as if the machine had lost it."""
    raw = client.writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


# Bytes


async def test_many_packets_in_one_frame_and_one_in_many_are_the_same_bytes(hall: Hall) -> None:
    await hall.open()
    client = await hall.enter()
    client.send(frame(b"abcdef"), frame(b"g"), frame(b""), frame(b"h", is_final=False))
    client.send(frame(b"ij", CONT, is_final=False), frame(b"k", CONT))
    await client.fence()
    assert hall.door.received == b"abcdefghijk"


async def test_frames_that_arrive_byte_by_byte_are_read(hall: Hall) -> None:
    await hall.open()
    client = await hall.enter()
    data = frame(b"one", is_final=False) + frame(b"?", PING) + frame(b" two", CONT) + frame(bytes(300))
    for byte in data:
        client.send(bytes([byte]))
        await client.writer.drain()
        await asyncio.sleep(0)
    assert (Opcode.PONG, b"?") in await client.fence()
    assert hall.door.received == b"one two" + bytes(300)


async def test_all_payload_of_one_read_reaches_the_door_in_one_call(hall: Hall) -> None:
    await hall.open()
    client = await hall.enter()
    client.send(*(frame(b"%d," % number) for number in range(100)), frame(b"?", PING), frame(b"end"))
    await client.fence()
    assert hall.door.pieces == [b"".join(b"%d," % number for number in range(100)) + b"end"]


@pytest.mark.parametrize("size", [1, 125, 126, 65_535, 65_536, 3 * MIB])
async def test_every_write_is_one_frame(hall: Hall, size: int) -> None:
    await hall.open(limit_bytes=4 * MIB)
    hall.on_made = lambda door: door.transport.write(b"welcome")
    client = await hall.enter()
    assert await client.read_frame() == (BINARY, b"welcome")
    payload = bytes(range(256)) * (size // 256 + 1)
    hall.door.transport.write(payload[:size])
    hall.door.transport.write(b"")
    hall.door.transport.writelines([b"a", b"b"])
    assert await client.read_frame() == (BINARY, payload[:size])
    assert await client.read_frame() == (BINARY, b"ab")


async def test_large_frames_go_both_ways(hall: Hall) -> None:
    await hall.open(limit_bytes=4 * MIB)
    client = await hall.enter()
    payload = bytes(range(256)) * 16 * 1024
    client.send(frame(payload))
    await hall.until(lambda: len(hall.door.received) == len(payload))
    assert hall.door.received == payload


async def test_the_door_can_ask_about_the_socket(hall: Hall) -> None:
    await hall.open()
    client = await hall.enter()
    transport = hall.door.transport
    assert transport.get_extra_info("peername") == client.writer.get_extra_info("sockname")
    assert transport.get_extra_info("no such thing", "default") == "default"
    assert (transport.get_write_buffer_size(), transport.can_write_eof()) == (0, True)
    transport.set_write_buffer_limits(high=5000, low=1000)
    assert transport.get_write_buffer_limits() == (1000, 5000)


# Pings


async def test_a_ping_is_answered_also_amid_a_message(hall: Hall) -> None:
    await hall.open()
    client = await hall.enter()
    client.send(frame(b"be", is_final=False), frame(b"there?", PING), frame(b"gun", CONT))
    assert await client.read_frame() == (Opcode.PONG, b"there?")
    await client.fence()
    assert hall.door.received == b"begun"


async def test_pings_of_who_reads_nothing_are_not_answered_until_it_does(hall: Hall) -> None:
    await hall.open()
    client = await hall.enter()
    door = hall.door
    client.transport.pause_reading()
    stuff(door)
    waiting = door.transport.get_write_buffer_size()
    client.send(*(frame(b"%d" % number, PING) for number in range(1_000)), frame(b"heard"))
    await hall.until(lambda: door.received == b"heard")
    assert door.transport.get_write_buffer_size() <= waiting
    client.transport.resume_reading()
    while (answer := await client.read_frame())[0] is BINARY:
        pass
    assert answer == (Opcode.PONG, b"999")
    assert await client.fence() == []


# Back-pressure


async def test_the_door_learns_that_its_peer_is_slow_and_that_it_is_not_any_more(hall: Hall) -> None:
    await hall.open()
    client = await hall.enter()
    client.transport.pause_reading()
    written = stuff(hall.door)
    client.transport.resume_reading()
    await_free = asyncio.ensure_future(hall.until(lambda: not hall.door.is_full))
    while written:
        opcode, payload = await client.read_frame()
        assert opcode is BINARY
        written -= len(payload)
    await await_free


async def test_a_door_that_reads_nothing_gets_nothing(hall: Hall) -> None:
    await hall.open(limit_bytes=64 * MIB)
    hall.on_data = lambda door, data: door.transport.pause_reading()
    client = await hall.enter()
    client.send(frame(b"first"))
    await hall.until(lambda: bool(hall.door.pieces))
    assert not hall.door.transport.is_reading()
    client.send(frame(bytes(16 * MIB)))
    await asyncio.sleep(0.05)
    assert hall.door.received == b"first"
    assert client.writer.transport.get_write_buffer_size() > 0
    hall.on_data = lambda door, data: None
    hall.door.transport.resume_reading()
    await hall.until(lambda: sum(map(len, hall.door.pieces)) == 5 + 16 * MIB)


# Limits


async def test_a_frame_above_the_limit_is_refused_by_its_header(hall: Hall) -> None:
    await hall.open()
    client = await hall.enter()
    with capture_logs() as lines:
        client.send(frame(b"fine"), b"\x82\xff" + (256 * MIB).to_bytes(8, "big"))
        assert await client.read_close() == (1009, b"")
    assert hall.door.received == b"fine"
    assert [(line["event"], line["log_level"], line["code"]) for line in lines] == [
        ("bad frame", "info", 1009)
    ]


# Endings


@pytest.mark.parametrize("said", [BYE, BYE + b"see you", struct.pack("!H", 4321), b""])
async def test_a_peer_that_closes_gets_its_close_back(hall: Hall, said: bytes) -> None:
    await hall.open()
    client = await hall.enter()
    client.send(frame(b"last words"), frame(said, CLOSE), frame(b"too late"))
    assert await client.read_frame() == (CLOSE, said)
    assert await client.read_rest() == b""
    await hall.until(lambda: bool(hall.door.losses))
    assert (hall.door.received, hall.door.losses) == (b"last words", [None])


@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_peer_that_vanishes_is_noticed_once(hall: Hall, is_reset: bool) -> None:
    await hall.open()
    client = await hall.enter()
    with capture_logs() as lines:
        client.send(frame(b"begun", is_final=False))
        await client.fence()
        if is_reset:
            reset(client)
        else:
            client.writer.close()
        await hall.until(lambda: bool(hall.door.losses))
        hall.door.transport.write(b"into the void")
        hall.door.transport.close()
        hall.door.transport.abort()
    assert lines == []


async def test_a_door_that_says_its_last_word_waits_for_the_peer(hall: Hall) -> None:
    await hall.open()
    client = await hall.enter()
    transport = hall.door.transport
    transport.write(b"bye")
    transport.write_eof()
    transport.write_eof()
    transport.write(b"never sent")
    assert await client.read_frame() == (BINARY, b"bye")
    assert await client.read_frame() == (CLOSE, BYE)
    client.send(frame(b"still talking"), frame(b"there?", PING))
    await hall.until(lambda: hall.door.received == b"still talking")
    assert not transport.is_closing()
    client.send(frame(BYE, CLOSE))
    assert await client.read_rest() == b""
    await hall.until(lambda: bool(hall.door.losses))


async def test_a_door_that_closes_sends_what_it_wrote(hall: Hall) -> None:
    await hall.open()
    client = await hall.enter()
    written = stuff(hall.door)
    hall.door.transport.close()
    hall.door.transport.close()
    assert hall.door.transport.is_closing()
    while written:
        written -= len((await client.read_frame())[1])
    assert await client.read_close() == (1000, b"")


async def test_a_door_that_aborts_sends_nothing_more(hall: Hall) -> None:
    await hall.open()
    client = await hall.enter()
    hall.door.transport.abort()
    assert hall.door.transport.is_closing()
    assert await client.is_cut()
    await hall.until(lambda: bool(hall.door.losses))


@pytest.mark.parametrize("ending", ["abort", "close"])
async def test_a_door_may_end_the_connection_as_soon_as_it_is_made(hall: Hall, ending: str) -> None:
    await hall.open()
    hall.on_made = lambda door: getattr(door.transport, ending)()
    client = await hall.connect()
    client.send(request_bytes(), frame(b"unheard"))
    await hall.until(lambda: bool(hall.doors) and bool(hall.door.losses))
    assert hall.door.received == b""


@pytest.mark.parametrize("ending", ["abort", "close", "write_eof"])
async def test_a_door_may_end_the_connection_amid_a_read(hall: Hall, ending: str) -> None:
    await hall.open()
    hall.on_data = lambda door, data: getattr(door.transport, ending)()
    client = await hall.enter()
    with capture_logs() as lines:
        client.send(frame(b"x"), frame(b"?", PING), frame(b"text", TEXT))
        with suppress(ConnectionResetError):
            await client.read_rest()
        client.writer.close()
        await hall.until(lambda: bool(hall.door.losses))
    assert hall.door.received == b"x"
    assert [line["code"] for line in lines] == ([1003] if ending == "write_eof" else [])


@pytest.mark.parametrize(
    ("data", "code"),
    [(frame(b"text", TEXT), 1003), (b"\x82\x01a", 1002), (frame(b"\x03\xe8\xff", CLOSE), 1007)],
    ids=["text", "not masked", "bad close"],
)
async def test_a_peer_that_breaks_the_rules_can_read_why(
    hall: Hall, data: bytes, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_socket, "CLOSING_TIMEOUT_S", 1000)  # it is no timeout that ends this
    await hall.open()
    client = await hall.enter()
    with capture_logs() as lines:
        client.send(frame(b"good"), data, bytes(MIB))  # closing in the midst of it would reset the connection
        assert await client.read_close() == (code, b"")
    assert [line["code"] for line in lines] == [code]
    assert hall.door.transport.is_closing()
    hall.door.transport.pause_reading()
    hall.door.transport.write(b"nothing more")
    hall.door.transport.close()
    client.send(frame(b"not heard any more"))
    client.writer.close()
    await hall.until(lambda: bool(hall.door.losses))
    assert hall.door.received == b"good"


@pytest.mark.parametrize("ending", ["write_eof", "bad frame", "close unread", "gone unread"])
async def test_a_peer_that_does_not_let_go_is_cut_off(
    hall: Hall, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_socket, "CLOSING_TIMEOUT_S", 0.05)
    await hall.open()
    client = await hall.enter()
    door = hall.door
    if "unread" in ending:
        client.transport.pause_reading()
        stuff(door)
    if ending == "write_eof":
        door.transport.write_eof()
    elif ending == "bad frame":
        client.send(frame(b"", TEXT))
    elif ending == "close unread":
        client.send(frame(BYE, CLOSE))
    else:
        client.writer.write_eof()
    await hall.until(lambda: bool(door.losses))


# TLS


async def test_it_is_the_same_over_tls(hall: Hall, tmp_path: Path) -> None:
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue(tmp_path, "server").both)
    await hall.listen(hall.make_entrance(limit_bytes=4 * MIB).accept, context)
    hall.on_data = echo
    payload = bytes(range(256)) * 8 * 1024
    for said, data in {1003: frame(b"text", TEXT), 1000: frame(BYE, CLOSE)}.items():
        client = await hall.connect(authority.client_context())
        await client.shake(frame(b"early"))
        assert await client.read_frame() == (BINARY, b"early")
        client.send(frame(payload))
        received = b""
        while len(received) < len(payload):
            received += (await client.read_frame())[1]
        assert received == payload
        client.send(data)
        assert await client.read_close() == (said, b"")
        await hall.until(lambda: all(door.losses for door in hall.doors))
    client = await hall.connect(authority.client_context())
    client.send(request_bytes("/other"))
    assert (await client.read_response())[0] == 404


async def test_frames_that_were_read_before_the_connection_is_lost_reach_the_door_first(hall: Hall) -> None:
    await hall.open()
    client = await hall.enter()
    hall.door.transport.pause_reading()
    transport = hall.door.transport
    transport.data_received(frame(b"abc") + frame(b"def"))  # as read in the same turn as the pause
    assert hall.door.received == b""
    reset(client)
    transport._socket.abort()
    await hall.until(lambda: bool(hall.door.losses))
    assert hall.door.received == b"abcdef"
    assert transport.is_closing()


async def test_frames_behind_a_close_of_the_door_are_not_read(hall: Hall) -> None:
    await hall.open()
    await hall.enter()
    transport = hall.door.transport
    transport.pause_reading()
    transport.data_received(frame(b"abc"))
    transport.abort()
    await hall.until(lambda: bool(hall.door.losses))
    assert hall.door.received == b""
