"""The listener with clients as people use them: httpx, TLS, certificates, proxies, MQTT over WebSocket."""

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from penstock.app import Server
from penstock.config import Settings
from penstock.doors.mqtt import MqttSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.net.http import HttpSettings
from penstock.net.tls import Certificates, TlsSettings
from penstock.wire.mqtt import ConnAck, Connect, Disconnect, PacketReader, Version, encode_packet
from penstock.wire.proxy_protocol import SIGNATURE
from tests.net.http.serving import MIB, House, get
from tests.support.certificates import Authority
from tests.support.waiting import until

MQTT = [Subprotocol("mqtt")]


async def received_bytes(client: ClientConnection) -> bytes:
    """The next message of a WebSocket, which has to be a binary one."""
    message = await client.recv()
    assert isinstance(message, bytes)
    return message


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def certificates(authority: Authority, folder: Path) -> Certificates:
    return Certificates(
        TlsSettings(
            certificate_file=authority.issue(folder, "server").both,
            ca_file=authority.write(folder / "ca.pem"),
            client_certificates="optional",
            name_as_user=True,
        )
    )


async def test_an_ordinary_client_is_at_home(house: House) -> None:
    await house.open()
    base = f"http://127.0.0.1:{house.door.ports()[0]}"

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield bytes(10_000)

    async with httpx.AsyncClient(base_url=base, timeout=20) as client:
        for path in ("/hot", "/app/x"):
            assert (await client.get(path)).status_code == 200
            assert (await client.head(path)).status_code == 200
            assert (await client.post(path, content=bytes(MIB))).json()["body"] == MIB
            assert (await client.post(path, content=chunks())).json()["body"] == MIB - 48_576
        answers = await asyncio.gather(*(client.get(f"/app/{number}") for number in range(50)))
        assert [answer.json()["path"] for answer in answers] == [f"/app/{number}" for number in range(50)]
        house.may_go_on.set()
        assert (await client.get("/app/stream")).content == b"end"
    await until(lambda: not house.door.connections, "a connection is still open", every_s=0)


async def test_the_same_over_tls(house: House, authority: Authority, tmp_path: Path) -> None:
    await house.open(certificates=certificates(authority, tmp_path))
    base = f"https://127.0.0.1:{house.door.ports('https')[0]}"
    async with httpx.AsyncClient(base_url=base, verify=authority.client_context(), timeout=20) as client:
        assert (await client.post("/hot", content=bytes(MIB))).json()["body"] == MIB
        assert (await client.get("/app/x")).json()["scheme"] == "https"
    peer = await house.connect(tls=authority.client_context())
    assert (await peer.ask(get("/hot", "Connection: close"))).status == 200
    assert await peer.rest() == b""


async def test_the_admin_port_speaks_tls_if_it_is_told_to(
    house: House, authority: Authority, tmp_path: Path
) -> None:
    secure = certificates(authority, tmp_path)
    await house.open(certificates=secure, tls_port=None, admin_port=0, admin_tls=True)
    [main], [admin] = house.door.ports(), house.door.ports("https")
    context = authority.client_context()
    assert (await house.ask(get("/figures"), port=admin, tls=context)).status == 200
    assert (await house.ask(get("/hot"), port=admin, tls=context)).status == 404
    assert (await house.ask(get("/hot"), port=main)).status == 200
    assert house.door.addresses() == [f"http://127.0.0.1:{main}", f"https://127.0.0.1:{admin}"]


async def test_a_certificate_names_who_asks(house: House, authority: Authority, tmp_path: Path) -> None:
    await house.open(certificates=certificates(authority, tmp_path))
    alice = authority.issue(tmp_path, "alice", common_name="alice")
    for known, user in ((alice, "alice"), (None, None)):
        peer = await house.connect(tls=authority.client_context(known))
        assert (await peer.ask(get("/hot"))).json()["user"] == user
        assert (await peer.ask(get("/app/x"))).json()["user"] == user


async def test_plain_bytes_on_the_tls_port_reach_nobody(
    house: House, authority: Authority, tmp_path: Path
) -> None:
    await house.open(certificates=certificates(authority, tmp_path))
    peer = await house.connect(port=house.door.ports("https")[0])
    await peer.send(get())
    assert await peer.is_cut()
    assert house.seen == []


async def test_a_proxy_tells_who_is_behind_it(house: House) -> None:
    await house.open(proxies=("127.0.0.0/8",))
    peer = await house.connect()
    addresses = (
        socket.inet_aton("192.0.2.7") + socket.inet_aton("10.0.0.1") + struct.pack("!HH", 51_234, 8080)
    )
    await peer.send(SIGNATURE + b"\x21\x11" + struct.pack("!H", len(addresses)) + addresses)
    assert (await peer.ask(get("/app/x"))).json()["client"] == ["192.0.2.7", 51_234]
    unannounced = await house.connect()
    await unannounced.send(get())
    assert await unannounced.is_cut()


# MQTT over WebSocket, on the HTTP port


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A whole server on free ports."""
    settings = Settings(
        mqtt=MqttSettings(port=0),
        http=HttpSettings(port=(0,)),
        sidecar=SidecarSettings(port=None),
        shutdown_timeout_s=2.0,
    )
    server = Server(settings)
    await server.start()
    yield server
    await server.stop()


def talk(port: int, name: str, protocol: MQTTProtocolVersion) -> list[bytes]:
    """Subscribe, publish at every QoS, and tell what came back."""
    client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=protocol, transport="websockets")
    got: list[bytes] = []
    came = threading.Event()

    def on_message(_: object, __: object, message: paho.MQTTMessage) -> None:
        got.append(bytes(message.payload))
        if len(got) == 3:
            came.set()

    def on_connect(*_: object) -> None:
        client.subscribe(name, 2)

    def on_subscribe(*_: object) -> None:
        for qos in range(3):
            client.publish(name, b"%d" % qos * 70_000, qos)

    client.on_message = on_message
    client.on_connect = on_connect
    client.on_subscribe = on_subscribe
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert came.wait(20)
    finally:
        client.disconnect()
        client.loop_stop()
    return sorted(got)


@pytest.mark.parametrize("protocol", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
async def test_mqtt_clients_find_their_door_on_the_http_port(
    server: Server, protocol: MQTTProtocolVersion
) -> None:
    [port] = server.http.ports()
    got = await asyncio.to_thread(talk, port, "over/websocket", protocol)
    assert got == [b"0" * 70_000, b"1" * 70_000, b"2" * 70_000]
    assert server.http.figures()["connections_handed_over"] == 1
    await until(lambda: not server.mqtt.connections, "an MQTT connection is still open")


async def test_the_mqtt_door_itself_refuses_who_does_not_speak_its_protocol(server: Server) -> None:
    [port] = server.http.ports()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        get(
            "/mqtt",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )
    )
    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"the sub-protocol mqtt or mqttv3.1 must be offered" in answer
    writer.close()


async def test_a_draining_server_says_goodbye_to_mqtt_clients_that_came_over_http() -> None:
    settings = Settings(
        mqtt=MqttSettings(port=0),
        http=HttpSettings(port=(0,)),
        sidecar=SidecarSettings(port=None),
        shutdown_timeout_s=2.0,
    )
    server = Server(settings)
    await server.start()
    [port] = server.http.ports()
    async with websocket(f"ws://127.0.0.1:{port}/mqtt", subprotocols=MQTT) as client:
        await client.send(encode_packet(Connect("stays", Version.V5), Version.V5))
        [connack] = PacketReader(100_000, Version.V5).feed(await received_bytes(client))
        assert isinstance(connack, ConnAck)
        await server.stop()
        [goodbye] = PacketReader(100_000, Version.V5).feed(await received_bytes(client))
        assert isinstance(goodbye, Disconnect)
        with pytest.raises(ConnectionClosed):
            await client.recv()
