"""A whole server that stops: however its HTTP clients behave, it keeps to its time."""

import asyncio

import pytest

from penstock.app import Server
from penstock.config import Settings
from penstock.doors.mqtt import MqttSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.net.http import HttpSettings
from tests.net.http.serving import get, post
from tests.support.waiting import until

STOP_S = 1.5
LEEWAY_S = 1.0
"""What a busy machine may take from the loop, and less than a door would take that gets its own time."""


async def started() -> Server:
    settings = Settings(
        mqtt=MqttSettings(port=0),
        http=HttpSettings(port=(0,)),
        sidecar=SidecarSettings(port=None),
        shutdown_timeout_s=STOP_S,
    )
    server = Server(settings)
    await server.start()
    return server


async def connected(server: Server, said: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http.ports()[0])
    before = server.broker.counters.bytes_received
    writer.write(said)
    await until(
        lambda: server.broker.counters.bytes_received >= before + len(said),
        "not all bytes were received",
        every_s=0,
    )
    return reader, writer


@pytest.mark.parametrize("said", [b"GET /hea", post("/publish", b"{}")[:-1], get("/livez")])
@pytest.mark.parametrize("is_drained", [True, False])
async def test_it_ends_in_time_whatever_its_clients_have_left_unsaid(
    monkeypatch: pytest.MonkeyPatch, said: bytes, is_drained: bool
) -> None:
    server = await started()
    _, writer = await connected(server, said)
    monkeypatch.setattr(Server, "_is_drained", is_drained)
    async with asyncio.timeout(STOP_S + LEEWAY_S):
        await server.stop()
    assert server.http.connections == set() or not is_drained
    writer.close()


async def test_doors_have_time_for_their_last_words_though_messages_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = await started()
    reader, writer = await connected(server, post("/publish", b"{}")[:-1])
    monkeypatch.setattr(Server, "_is_drained", False)
    stopping = asyncio.create_task(server.stop())
    await until(
        lambda: not server.http.addresses(), "the server still listens"
    )  # until the doors are asked to finish
    writer.write(b"}")
    assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 ")
    await stopping
    writer.close()
