"""Wrong passwords in floods from one address: other addresses come in at every door, and nothing piles up."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
from argon2 import PasswordHasher

from penstock.client import MqttClient
from penstock.common.scram import FEWEST_ITERATIONS, METHOD, make_keys
from penstock.core.access.passwords import encode_keys
from penstock.wire.mqtt import Connect, Version
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.sidecar.messages import nexusd
from tests.doors.sidecar.calling import Stub
from tests.faults.watching import MIB, Costs
from tests.support.servers import RunningServer, StartServer
from tests.support.waiting import until

ATTACKER = "127.0.0.2"
USERS = 10
ATTEMPTS = 300
"""Wrong passwords tried at the same time: more than may wait."""
LOGIN_TIMEOUT_S = 20.0
"""Seconds are enough on a quiet machine; without turns it takes minutes."""


CHEAP = PasswordHasher(time_cost=1, memory_cost=16 * 1024, parallelism=1)


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> RunningServer:
    """A server that checks any number of wrong passwords, so that only turns are between it and a flood."""
    hash, keys = CHEAP.hash("right"), encode_keys(make_keys("right", FEWEST_ITERATIONS))
    file = tmp_path / "passwords"
    file.write_text("\n".join(f"u{number}:{hash}:{keys}" for number in range(USERS)), encoding="utf-8")
    limits = {"failures_per_address": 0}
    return start_server({"access": {"password_file": str(file)}, "http": {"port": 0}, "connections": limits})


def wrong_connect(number: int, size: int = 0) -> bytes:
    password = (b"%d" % number).ljust(size, b"x")
    packet = Connect(f"c{number}", Version.V5, user_name=f"u{number % USERS}", password=password)
    return encode_packet(packet, Version.V5)


def wrong_request(number: int) -> bytes:
    token = b64encode(b"u%d:%d" % (number % USERS, number))
    return b"GET /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic %s\r\n\r\n" % token


async def send_once(port: int, data: bytes) -> None:
    """Send bytes from the attacker's address, and read until there is an answer."""
    with suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0))
        try:
            writer.write(data)
            await reader.read(1)
        finally:
            writer.transport.abort()


@asynccontextmanager
async def flood(server: RunningServer, per_s: int) -> AsyncIterator[None]:
    """Try wrong passwords by MQTT and HTTP, again after each answer, until the context is left."""
    port, http_port = server.port, server.port_of("http")

    async def keep_on(first: int) -> None:
        for number in count(first, ATTEMPTS):
            await send_once(
                *((port, wrong_connect(number)) if first % 2 else (http_port, wrong_request(number)))
            )
            await asyncio.sleep(1 / per_s)

    flooding = [asyncio.create_task(keep_on(number)) for number in range(ATTEMPTS)]
    await until(lambda: "too many password checks" in server.logged, "not too many checks wait")
    try:
        yield
    finally:
        for task in flooding:
            task.cancel()
        await asyncio.gather(*flooding, return_exceptions=True)


async def by_mqtt(server: RunningServer, user: str) -> None:
    client = await MqttClient.connect(port=server.port, user=user, password="right")
    await client.disconnect()


async def by_scram(server: RunningServer, user: str) -> None:
    client = await MqttClient.connect(port=server.port, user=user, password="right", authentication=METHOD)
    await client.disconnect()


async def by_websocket(server: RunningServer, user: str) -> None:
    port = server.port_of("http")
    client = await MqttClient.connect(port=port, user=user, password="right", websocket_path="/mqtt")
    await client.disconnect()


async def by_http(server: RunningServer, user: str) -> None:
    assert await ask(server, "/api/v1/topics", user) == b"200"


async def by_socket(server: RunningServer, user: str) -> None:
    upgrade = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    assert await ask(server, "/ws", user, upgrade) == b"101"


async def ask(server: RunningServer, path: str, user: str, more: bytes = b"") -> bytes:
    """The status of a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port_of("http"))
    token = b64encode(f"{user}:right".encode())
    head = b"GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic %s\r\n" % (path.encode(), token)
    writer.write(head + more + b"\r\n")
    line = await reader.readline()
    writer.close()
    return line.split()[1]


async def by_grpc(server: RunningServer, user: str) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port_of('grpc')}") as channel:
        metadata = (("username", user), ("password", "right"))
        response = await Stub(channel).publish(nexusd.PublishRequest(topic="a"), metadata=metadata)
        assert response.success


DOORS: list[Callable[[RunningServer, str], Coroutine[Any, Any, None]]] = [
    by_mqtt,
    by_scram,
    by_websocket,
    by_http,
    by_socket,
    by_grpc,
]


async def test_other_addresses_come_in_at_every_door_during_a_flood(
    server: RunningServer, scale: int
) -> None:
    async with flood(server, scale):
        for number, enter in enumerate(DOORS):
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                await enter(server, f"u{number}")  # each for the first time: nothing is remembered
        await until(lambda: "password checks refused" in server.logged, "the log says nothing")
    lines = [line for line in server.logged.splitlines() if "password checks refused" in line]
    assert all(f"worst={ATTACKER} " in line for line in lines)


async def test_clients_that_hang_up_at_once_leave_neither_memory_nor_files_behind(
    server: RunningServer, scale: int
) -> None:
    await by_mqtt(server, "u0")
    costs = Costs(server)
    for start in range(0, 600 * scale, 50):
        await asyncio.gather(*(hang_up(server.port, start + number) for number in range(50)))
    async with asyncio.timeout(LOGIN_TIMEOUT_S):
        await by_mqtt(server, "u1")
    await costs.are_back()
    assert costs.more_bytes < 80 * MIB  # four checks, and as many large passwords as may wait


async def hang_up(port: int, number: int) -> None:
    """Send a large password and close at once."""
    with suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0))
        writer.write(wrong_connect(number, 60_000))
        await writer.drain()
        writer.close()
