"""From the first byte to the open WebSocket: requests in pieces, wrong ports, strangers who say nothing."""

import asyncio
import subprocess
import sys
from typing import cast

import pytest
from structlog.testing import capture_logs
from websockets.frames import Opcode

from penstock.net.door import Peer
from penstock.net.websocket.byte_socket import ByteSocket
from penstock.net.websocket.handshake import read_request, respond_to
from tests.net.websocket.peers import (
    Hall,
    frame,
    has_nobody_waiting,
    has_somebody_waiting,
    make_terms,
    request_bytes,
)

CONNECT = bytes.fromhex("100c00044d51545404020000") + b"\x00\x00"
TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(100)


async def test_a_request_in_single_bytes_is_understood(hall: Hall) -> None:
    entrance = await hall.open()
    client = await hall.connect()
    for byte in request_bytes():
        client.send(bytes([byte]))
        await client.writer.drain()
        await asyncio.sleep(0)
    assert (await client.read_response())[0] == 101
    await hall.until(lambda: bool(hall.doors))
    assert entrance.waiting == set()


async def test_what_follows_the_request_at_once_is_not_lost(hall: Hall) -> None:
    await hall.open()
    client = await hall.connect()
    await client.shake(frame(b"early "), frame(b"bird")[:7])
    client.send(frame(b"!"))  # completes nothing: the frame before it still lacks three bytes
    await hall.until(lambda: len(hall.door.received) >= 10)
    assert hall.door.received.startswith(b"early b")
    assert hall.door.pieces[0] == b"early b"


async def test_the_door_is_told_who_came_if_the_way_in_knew(hall: Hall) -> None:
    entrance = hall.make_entrance()
    peer = Peer("203.0.113.9", 4711, "pump-7")
    await hall.listen(lambda: entrance.accept(peer))
    await hall.enter()
    assert hall.door.peer is peer
    await hall.listen(entrance.accept)
    await hall.enter()
    assert hall.doors[1].peer is None


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (CONNECT, 400),
        (TLS_HELLO, 400),
        (b"\x00", 400),
        (b"GET / HTTP/3.14\r\n\r\n", 400),
        (b"Hello there\r\n\r\n", 400),
        (b"GET /mqtt HTTP/1.1\r\nCookie: " + b"x" * 20_000, 431),
        (request_bytes(method="POST"), 405),
        (request_bytes("/other"), 404),
        (request_bytes(Host="attacker.example"), 421),
        (request_bytes(Origin="https://attacker.example"), 403),
    ],
    ids=["mqtt", "tls", "zero", "version", "words", "endless", "post", "path", "host", "origin"],
)
async def test_who_is_refused_can_read_why(hall: Hall, data: bytes, status: int) -> None:
    await hall.open()
    with capture_logs() as lines:
        client = await hall.connect()
        client.send(data, bytes(1_000_000))  # closing in the midst of it would reset the connection
        refused, body = await client.read_response()
    assert refused == status
    assert body.endswith(b"\n")
    assert [(line["event"], line["log_level"], line["status"]) for line in lines] == [
        ("handshake refused", "info", status)
    ]
    assert hall.doors == []


@pytest.mark.parametrize("data", [b"", b"G", request_bytes()[:-1]], ids=["nothing", "a byte", "almost all"])
@pytest.mark.parametrize("is_reset", [False, True])
async def test_who_leaves_in_the_midst_of_it_leaves_nothing_behind(
    hall: Hall, data: bytes, is_reset: bool
) -> None:
    entrance = await hall.open()
    with capture_logs() as lines:
        client = await hall.connect()
        client.send(data)
        await has_somebody_waiting(entrance)
        if is_reset:
            client.writer.transport.abort()
        else:
            client.writer.close()
        await has_nobody_waiting(entrance)
    assert (lines, hall.doors) == ([], [])


@pytest.mark.parametrize("data", [b"", request_bytes()[:-1]], ids=["silent", "slow"])
async def test_who_does_not_finish_in_time_is_cut_off(hall: Hall, data: bytes) -> None:
    entrance = await hall.open(timeout_s=0.05)
    client = await hall.connect()
    client.send(data)
    assert await client.is_cut()
    assert entrance.waiting == set()


async def test_who_does_not_take_the_refusal_is_cut_off(hall: Hall) -> None:
    entrance = await hall.open(timeout_s=0.05)
    client = await hall.connect()
    client.send(request_bytes("/other"))
    assert (await client.read_response())[0] == 404
    await has_nobody_waiting(entrance)


async def test_an_open_websocket_has_no_deadline(hall: Hall) -> None:
    await hall.open(timeout_s=0.05)
    client = await hall.enter()
    await asyncio.sleep(0.1)
    assert await client.fence() == []


async def test_who_finds_no_room_is_cut_off(hall: Hall) -> None:
    entrance = await hall.open(admits=lambda host: False)
    assert await (await hall.connect()).is_cut()
    assert entrance.waiting == set()


async def test_a_closed_entrance_waits_for_nobody_and_keeps_who_is_in(hall: Hall) -> None:
    entrance = await hall.open()
    inside, outside = await hall.enter(), await hall.connect()
    outside.send(b"GET")
    await has_somebody_waiting(entrance)
    entrance.close()
    assert await outside.is_cut()
    assert await inside.fence() == []


class HttpServer(asyncio.Protocol):
    """Somebody else's listener, which reads requests itself."""

    def __init__(self, hall: Hall) -> None:
        self._hall = hall

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        head, end, rest = data.partition(b"\r\n\r\n")
        request = read_request(head + end)
        assert request is not None
        self._transport.write(respond_to(request, make_terms()).response.serialize())
        buffer = memoryview(bytearray(1024))
        ByteSocket(self._transport, self._hall.make_door(None), buffer, 1024).start(rest)


async def test_another_listener_can_hand_over_a_request(hall: Hall) -> None:
    await hall.listen(lambda: HttpServer(hall))
    client = await hall.connect()
    await client.shake(frame(b"one "))
    client.send(frame(b"two"))
    await client.fence()
    assert hall.door.received == b"one two"
    hall.door.transport.write(b"three")
    assert await client.read_frame() == (Opcode.BINARY, b"three")


def test_the_library_is_loaded_only_by_who_needs_it() -> None:
    program = "import penstock.app, penstock.net.websocket, sys; sys.exit('websockets' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
