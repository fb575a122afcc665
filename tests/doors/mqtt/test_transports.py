"""The same door over TLS, WebSocket and behind a proxy, with clients as people use them."""

import asyncio
import signal
import socket
import ssl
import struct
import threading
from contextlib import suppress
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import ConnectionClosedOK, InvalidStatus
from websockets.typing import Origin, Subprotocol

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    PacketReader,
    PubAck,
    Publish,
    Request,
    SubAck,
    Subscribe,
    Version,
    encode_packet,
)
from penstock.wire.mqtt.reader import Item
from tests.doors.mqtt.peers import Peers
from tests.support.certificates import Authority, Files
from tests.support.servers import RunningServer, StartServer
from tests.support.waiting import until

SUBPROTOCOL = [Subprotocol("mqtt")]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def every_port(start_server: StartServer, authority: Authority, folder: Path) -> RunningServer:
    """Listens in every way there is; clients may have certificates, which name them."""
    return start_server(
        {
            "mqtt": {"tls_port": 0, "websocket_port": 0, "websocket_tls_port": 0},
            "tls": {
                "certificate_file": authority.issue(folder, "server").both,
                "ca_file": authority.write(folder / "ca.pem"),
                "client_certificates": "optional",
                "name_as_user": True,
            },
        }
    )


@pytest.fixture(scope="module")
def alice(authority: Authority, folder: Path) -> Files:
    return authority.issue(folder, "alice", common_name="alice")


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws", "wss"])
@pytest.mark.parametrize("protocol", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
def test_ordinary_client_is_at_home_on_every_port(
    every_port: RunningServer, authority: Authority, name: str, scheme: str, protocol: MQTTProtocolVersion
) -> None:
    is_web = scheme in ("ws", "wss")
    client = paho.Client(
        CallbackAPIVersion.VERSION2, name, protocol=protocol, transport="websockets" if is_web else "tcp"
    )
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
    if scheme in ("mqtts", "wss"):
        client.tls_set_context(authority.client_context())
    client.connect("127.0.0.1", every_port.port_of(scheme))
    client.loop_start()
    try:
        assert came.wait(20)
    finally:
        client.disconnect()
        client.loop_stop()
    assert sorted(got) == [b"0" * 70_000, b"1" * 70_000, b"2" * 70_000]


# Certificates


async def test_name_in_a_certificate_is_the_user_name(
    start_server: StartServer, authority: Authority, folder: Path, alice: Files
) -> None:
    (folder / "acl").write_text("user alice\nboth mine/#\nanonymous\nsubscribe news/#\n")
    server = start_server(
        {
            "mqtt": {"tls_port": 0},
            "access": {"acl_file": str(folder / "acl")},
            "tls": {
                "certificate_file": authority.issue(folder, "named").both,
                "ca_file": authority.write(folder / "ca.pem"),
                "client_certificates": "optional",
                "name_as_user": True,
            },
        }
    )
    port = server.port_of("mqtts")
    assert not await greet(port, authority.client_context(), user="alice")  # a name proves nothing
    for certificate, user, expected in ((alice, "bob", (0, 0x87)), (None, None, (0x87, 0))):
        context = authority.client_context(certificate)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        asked = Subscribe(1, (Request("mine/#"), Request("news/#")))
        writer.write(encode_packet(Connect("", Version.V5, user_name=user), Version.V5))
        writer.write(encode_packet(asked, Version.V5))
        packets = PacketReader(100_000, Version.V5)
        got: list[object] = []
        while len(got) < 2:
            got += packets.feed(await reader.read(1_000))
        assert isinstance(got[0], ConnAck)
        assert isinstance(got[1], SubAck)
        assert got[1].reasons == expected
        writer.close()
        await writer.wait_closed()


async def test_client_without_a_certificate_is_not_heard_where_one_is_required(
    start_server: StartServer, authority: Authority, folder: Path, alice: Files
) -> None:
    server = start_server(
        {
            "mqtt": {"tls_port": 0},
            "tls": {
                "certificate_file": authority.issue(folder, "strict").both,
                "ca_file": authority.write(folder / "ca.pem"),
                "client_certificates": "required",
            },
        }
    )
    port = server.port_of("mqtts")
    assert await greet(port, authority.client_context(alice))
    assert not await greet(port, authority.client_context())
    assert not await greet(port, authority.client_context(Authority().issue(folder, "stranger")))


async def greet(port: int, context: ssl.SSLContext, user: str | None = None) -> bool:
    """Whether a CONNECT is accepted."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except (ssl.SSLError, OSError):
        return False
    try:
        writer.write(encode_packet(Connect("", user_name=user), Version.V311))
        return await reader.read(4) == b"\x20\x02\x00\x00"
    except (ssl.SSLError, OSError):
        return False
    finally:
        writer.close()
        with suppress(ssl.SSLError, OSError):
            await writer.wait_closed()


async def test_renewed_certificate_is_taken_on_sighup_and_old_connections_live_on(
    start_server: StartServer, authority: Authority, folder: Path
) -> None:
    files = authority.issue(folder, "renewed")
    settings = {"certificate_file": files.both, "check_interval_s": 0}
    server = start_server({"mqtt": {"tls_port": 0}, "tls": settings})
    port = server.port_of("mqtts")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority.client_context())
    writer.write(encode_packet(Connect(""), Version.V311))
    assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
    new = Authority()
    new.issue(folder, "renewed")
    server.process.send_signal(signal.SIGHUP)
    await until(lambda: "certificates reloaded" in server.logged, "'certificates reloaded' is not in the log")
    assert await greet(port, new.client_context())
    assert not await greet(port, authority.client_context())
    writer.write(b"\xc0\x00")
    assert await reader.readexactly(2) == b"\xd0\x00"
    writer.close()
    await writer.wait_closed()


async def test_renewed_certificate_is_found_without_being_told(
    start_server: StartServer, authority: Authority, folder: Path
) -> None:
    files = authority.issue(folder, "found")
    settings = {"certificate_file": files.both, "check_interval_s": 0.05}
    port = start_server({"mqtt": {"tls_port": 0}, "tls": settings}).port_of("mqtts")
    new = Authority()
    new.issue(folder, "found")
    await until(lambda: greet(port, new.client_context()), "the new certificate is not used", every_s=0.05)


async def test_plain_bytes_on_the_tls_port_are_a_line_in_the_log(every_port: RunningServer) -> None:
    for data in (encode_packet(Connect(""), Version.V311), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03"):
        reader, writer = await asyncio.open_connection("127.0.0.1", every_port.port_of("mqtts"))
        writer.write(data)
        writer.write_eof()
        await reader.read()
        writer.close()
    await until(lambda: "handshake" in every_port.logged, "'handshake' is not in the log")
    assert "Traceback" not in every_port.logged


# WebSocket


async def test_packets_may_be_cut_anywhere_over_frames(every_port: RunningServer, name: str) -> None:
    sent = b"".join(
        encode_packet(packet, Version.V311)
        for packet in (
            Connect(name),
            Subscribe(1, (Request(name, 1),)),
            Publish(name, b"x" * 300, 1, packet_id=2),
        )
    )
    async with websocket(f"ws://127.0.0.1:{every_port.port_of('ws')}/mqtt", subprotocols=SUBPROTOCOL) as peer:
        for index in range(len(sent)):
            await peer.send(sent[index : index + 1])
        packets = PacketReader(100_000)
        got: list[Item] = []
        while len(got) < 4:
            data = await peer.recv()
            assert isinstance(data, bytes)
            got += packets.feed(data)
        assert sorted(type(packet).__name__ for packet in got) == ["ConnAck", "PubAck", "Publish", "SubAck"]
        assert PubAck(2) in got


async def test_web_page_of_somebody_else_is_refused(every_port: RunningServer) -> None:
    port = every_port.port_of("ws")
    address = f"ws://127.0.0.1:{port}/mqtt"
    for stranger in ("https://evil.example", f"http://127.0.0.1:{port + 1}"):
        with pytest.raises(InvalidStatus):
            await websocket(address, subprotocols=SUBPROTOCOL, origin=Origin(stranger))
    peer = await websocket(address, subprotocols=SUBPROTOCOL, origin=Origin(f"http://127.0.0.1:{port}"))
    await peer.close()


# Behind a proxy


def proxy_header(host: str, port: int) -> bytes:
    addresses = socket.inet_aton(host) + socket.inet_aton("127.0.0.1") + struct.pack("!HH", port, 1883)
    return b"\r\n\r\n\x00\r\nQUIT\n\x21\x11" + struct.pack("!H", len(addresses)) + addresses


async def test_address_behind_a_proxy_is_the_clients(start_server: StartServer) -> None:
    server = start_server({"mqtt": {"proxies": ["127.0.0.1/32"]}, "connections": {"per_address": 1}})
    answers = []
    writers = []
    for host in ("192.0.2.7", "192.0.2.8", "192.0.2.7"):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(proxy_header(host, 4000) + encode_packet(Connect("", Version.V5), Version.V5))
        head = await reader.readexactly(4)
        answers.append(head[3])
        writers.append(writer)
    assert answers == [0, 0, 0x97]
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writers.append(writer)
    writer.write(encode_packet(Connect("without a header"), Version.V311))
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    for writer in writers:
        writer.close()


# One address


async def test_address_that_comes_too_often_is_told(start_server: StartServer) -> None:
    server = start_server({"connections": {"rate_per_address": 0.01, "burst_per_address": 2}})
    peers = Peers(server.port, hears_words=False)
    for _ in range(2):
        await peers.connect()
    assert await peers.refused(Connect("", Version.V5)) == [ConnAck(False, 0x9F)]
    assert await peers.refused(Connect("", Version.V311)) == [ConnAck(False, 3)]
    await peers.close()
    await until(
        lambda: "connections refused by address" in server.logged,
        "'connections refused by address' is not in the log",
        every_s=0.05,
    )
    assert "127.0.0.1" in server.logged


async def test_two_clients_that_fight_for_one_name_are_named(start_server: StartServer, name: str) -> None:
    server = start_server()
    peers = Peers(server.port)
    for _ in range(8):
        await peers.connect(name)
    line = next(line for line in server.logged.splitlines() if "fight for one client id" in line)
    assert name in line
    assert line.count("127.0.0.1:") == 2
    await peers.close()


# Frames and packets


@pytest.fixture(scope="module")
def small_packets(start_server: StartServer) -> RunningServer:
    limits = {"websocket_port": 0, "max_payload_bytes": 1000, "max_control_bytes": 1024}
    return start_server({"mqtt": limits})


async def test_a_frame_may_hold_any_number_of_packets(small_packets: RunningServer) -> None:
    address = f"ws://127.0.0.1:{small_packets.port_of('ws')}/mqtt"
    async with websocket(address, subprotocols=SUBPROTOCOL, proxy=None) as client:
        packets = [Publish("a", bytes(900), 1, packet_id=number) for number in range(1, 61)]
        frame = b"".join(encode_packet(each, Version.V5) for each in (Connect("", Version.V5), *packets))
        assert len(frame) > 20 * (1000 + 1024)
        await client.send(frame)
        reader, answers = PacketReader(10_000, Version.V5), list[Item]()
        while len(answers) < 61:
            data = await asyncio.wait_for(client.recv(), 20)
            assert isinstance(data, bytes)
            answers += reader.feed(data)
        assert [each.packet_id for each in answers[1:] if isinstance(each, PubAck)] == list(range(1, 61))


async def test_a_packet_that_is_too_large_is_answered_as_over_tcp(small_packets: RunningServer) -> None:
    address = f"ws://127.0.0.1:{small_packets.port_of('ws')}/mqtt"
    async with websocket(address, subprotocols=SUBPROTOCOL, proxy=None) as client:
        await client.send(encode_packet(Connect("", Version.V5), Version.V5))
        assert isinstance(await asyncio.wait_for(client.recv(), 20), bytes)
        await client.send(encode_packet(Publish("a", bytes(5000)), Version.V5))
        goodbye = await asyncio.wait_for(client.recv(), 20)
        assert goodbye == b"\xe0\x01\x95"
        with pytest.raises(ConnectionClosedOK):
            await asyncio.wait_for(client.recv(), 20)
