"""Clients that others wrote speak in messages here, with compression and without."""

import asyncio
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

from penstock.wire.websocket.deflate import WINDOW_BITS, deflated_frame
from penstock.wire.websocket.encoding import binary_header, text_frame
from tests.net.websocket.message_peers import MessageHall, MessageRecorder
from tests.net.websocket.peers import MIB, TIMEOUT_S

MESSAGES: list[str | bytes] = [
    "",
    "small",
    "Grüße, κόσμε, 😀",
    '{"type":"publish","topic":"a","data":1}' * 100,
    "x" * 125,
    "x" * 126,
    "ä" * 40_000,
    b"",
    bytes(range(256)),
    bytes(70_000),
    "z" * MIB,
]


def echo(door: MessageRecorder, messages: list[str | bytes]) -> None:
    """Send back everything, compressed for who wants that."""
    frame = deflated_frame if door.socket.is_deflated else text_frame
    for message in messages:
        if isinstance(message, str):
            door.socket.write(frame(message.encode()))
        else:
            door.socket.write(binary_header(len(message)) + message)


@pytest.fixture
async def address(forum: MessageHall) -> AsyncIterator[str]:
    """Where messages are sent back, at whatever speed they come."""
    forum.on_messages = echo
    await forum.open(deflates=True, limit_bytes=2 * MIB)
    yield f"ws://127.0.0.1:{forum.port}/ws"


@pytest.mark.parametrize(
    ("extension", "is_deflated"),
    [
        (None, False),
        (ClientPerMessageDeflateFactory(), True),
        (ClientPerMessageDeflateFactory(client_max_window_bits=None), True),
        (ClientPerMessageDeflateFactory(server_max_window_bits=15, client_max_window_bits=15), True),
        (ClientPerMessageDeflateFactory(server_max_window_bits=9, client_max_window_bits=9), False),
        (ClientPerMessageDeflateFactory(True, True), True),
    ],
    ids=["plain", "usual", "no window", "largest windows", "smallest windows", "no takeover"],
)
async def test_websockets_gets_back_what_it_sends(
    forum: MessageHall, address: str, extension: ClientPerMessageDeflateFactory | None, is_deflated: bool
) -> None:
    extensions = None if extension is None else [extension]
    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(address, compression=None, extensions=extensions, max_size=None) as client,
    ):
        for message in MESSAGES:
            await client.send(message)
            assert await client.recv() == message
        await client.send(["in ", "several ", "", "parts"])
        assert await client.recv() == "in several parts"
        await (await client.ping(b"there?"))
        assert forum.door.socket.is_deflated is is_deflated
    assert client.close_code == 1000
    await forum.until(lambda: bool(forum.door.losses))


async def test_websockets_sees_why_it_ends(forum: MessageHall, address: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with connect(address) as client:
            await client.send("x" * (2 * MIB + 1))
            with pytest.raises(ConnectionClosed):
                await client.recv()
            assert client.close_code == 1009
        async with connect(address) as client:
            await client.send("hello")
            await client.recv()
            forum.doors[1].socket.close(1008, "für heute genug")
            with pytest.raises(ConnectionClosed):
                await client.recv()
            assert (client.close_code, client.close_reason) == (1008, "für heute genug")
        await forum.until(lambda: all(door.losses for door in forum.doors))


async def test_a_client_that_only_listens_answers_pings(forum: MessageHall, address: str) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(address, ping_interval=None) as client:
        await client.send("hello")
        await client.recv()
        for _ in range(3):
            forum.scheduler.advance(25)
            await (
                client.ping()
            )  # what it says before our ping arrives answers nothing, what it says after does
            await client.send("fence")
            assert await client.recv() == "fence"
        assert forum.door.losses == []


@pytest.fixture
def aiohttp() -> ModuleType:
    module: ModuleType = pytest.importorskip("aiohttp")
    return module


@pytest.mark.parametrize("bits", [0, 9, 15])
async def test_aiohttp_gets_back_what_it_sends(
    forum: MessageHall, address: str, aiohttp: ModuleType, bits: int
) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        aiohttp.ClientSession() as session,
        session.ws_connect(address, compress=bits, max_msg_size=0) as client,
    ):
        for message in MESSAGES:
            await send(client, message)
            assert (await client.receive()).data == message
        assert forum.door.socket.is_deflated is (bits >= WINDOW_BITS)
        await client.close(code=4000, message=b"enough")
    await forum.until(lambda: forum.door.losses == [None])


async def send(client: Any, message: str | bytes) -> None:
    if isinstance(message, str):
        await client.send_str(message)
    else:
        await client.send_bytes(message)
