"""Clients that others wrote open a WebSocket here and speak MQTT over it."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from queue import SimpleQueue
from urllib.parse import urlsplit

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from penstock.app import Server
from penstock.config import Settings
from penstock.doors.mqtt import MqttSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.net.http import HttpSettings
from tests.net.websocket.peers import MIB, TIMEOUT_S, Hall

MQTT = [Subprotocol("mqtt")]


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The WebSocket port of a server that has no other."""
    server = Server(
        Settings(
            mqtt=MqttSettings(port=None, websocket_port=0),
            http=HttpSettings(port=()),
            sidecar=SidecarSettings(port=None),
        )
    )
    await server.start()
    [address] = server.mqtt.addresses()
    assert address.startswith("ws://")
    yield urlsplit(address).port or 0
    await server.stop()


@pytest.mark.parametrize("sizes", [[5], [0, 125, 126], [65_535, 65_536], [MIB]], ids=str)
async def test_a_websockets_client_is_understood(hall: Hall, sizes: list[int]) -> None:
    await hall.open()
    hall.on_data = lambda door, data: door.transport.write(data)
    async with connect(f"ws://127.0.0.1:{hall.port}/mqtt", subprotocols=MQTT, max_size=None) as client:
        assert client.subprotocol == "mqtt"
        sent = [bytes([number]) * size for number, size in enumerate(sizes)]
        await client.send(sent)  # as one message in fragments
        received = b""
        async with asyncio.timeout(TIMEOUT_S):
            while len(received) < sum(sizes):
                received += await client.recv(decode=False)
            await (await client.ping(b"there?"))
    assert received == b"".join(sent)
    assert client.close_code == 1000
    await hall.until(lambda: bool(hall.door.losses))


async def test_a_websockets_client_sees_why_it_ends(hall: Hall) -> None:
    await hall.open()
    address = f"ws://127.0.0.1:{hall.port}/mqtt"
    async with connect(address, subprotocols=MQTT) as client:
        await client.send("text")
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1003
    async with connect(address, subprotocols=MQTT) as client:
        hall.doors[1].transport.write_eof()
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1000
    with pytest.raises(InvalidStatus) as refused:
        await connect(address, subprotocols=MQTT, origin=Origin("https://attacker.example"))
    assert refused.value.response.status_code == 403
    with pytest.raises(InvalidStatus) as refused:
        await connect(address)
    assert refused.value.response.status_code == 400


@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
async def test_paho_speaks_mqtt_over_websocket(port: int, version: MQTTProtocolVersion) -> None:
    arrived: SimpleQueue[MQTTMessage] = SimpleQueue()
    payloads = [b"", b"small", bytes(70_000), bytes(range(256)) * 8 * 1024]
    client = Client(CallbackAPIVersion.VERSION2, "paho", protocol=version, transport="websockets")

    def on_connect(*_: object) -> None:
        client.subscribe("paho/#", 1)

    client.on_subscribe = lambda *_: publish(client, payloads)
    client.on_message = lambda _, __, message: arrived.put(message)
    client.on_connect = on_connect
    await asyncio.to_thread(client.connect, "127.0.0.1", port)
    client.loop_start()
    try:
        messages = [await asyncio.to_thread(arrived.get, timeout=TIMEOUT_S) for _ in payloads]
        assert [message.payload for message in messages] == payloads
    finally:
        client.disconnect()
        await asyncio.to_thread(client.loop_stop)


def publish(client: Client, payloads: Iterable[bytes]) -> None:
    for payload in payloads:
        client.publish("paho/topic", payload, qos=1)
