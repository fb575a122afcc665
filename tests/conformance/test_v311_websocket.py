"""MQTT 3.1.1, section 6: WebSocket as transport."""

import re
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from penstock.wire.mqtt import Connect, Publish, Version, Will, encode_packet
from tests.conformance.statements import v311
from tests.conformance.v311_bytes import frame, text
from tests.doors.mqtt.peers import TIMEOUT_S, Peers
from tests.support.servers import RunningServer, StartServer

MQTT = Subprotocol("mqtt")
CONNACK = b"\x20\x02\x00\x00"
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


@pytest.fixture(scope="module")
def web(start_server: StartServer) -> RunningServer:
    """A server that also speaks MQTT over WebSocket."""
    return start_server({"mqtt": {"websocket_port": 0}})


@pytest.fixture
def address(web: RunningServer) -> str:
    """Where WebSocket clients find the server, as it tells whoever started it."""
    found = re.search(r"ws://\S+/mqtt", web.printed)
    assert found is not None, web.printed
    return found[0]


@pytest.fixture
async def socket(address: str) -> AsyncIterator[ClientConnection]:
    """A WebSocket on which nothing has been said yet."""
    async with connect(address, subprotocols=[MQTT], open_timeout=TIMEOUT_S) as socket:
        yield socket


def hello(name: str, will: Will | None = None) -> bytes:
    return encode_packet(Connect(name, Version.V311, will=will), Version.V311)


async def heard(socket: ClientConnection, size: int) -> bytes:
    """That many bytes; whatever brings them must be binary frames."""
    data = b""
    while len(data) < size:
        piece = await socket.recv()
        assert isinstance(piece, bytes), piece
        data += piece
    return data


async def wait_closed(socket: ClientConnection) -> None:
    """The server has nothing to say, and closes."""
    with pytest.raises(ConnectionClosed):
        await socket.recv()


@v311("6.0.0-1")
async def test_v311_mqtt_6_0_0_1_server_sends_binary_frames(socket: ClientConnection, name: str) -> None:
    await socket.send(hello(name))
    assert await heard(socket, 4) == CONNACK
    await socket.send(frame(0x82, b"\x00\x01" + text(name) + b"\x00"))
    assert await heard(socket, 5) == b"\x90\x03\x00\x01\x00"
    message = frame(0x30, text(name) + b"x")
    await socket.send(message)
    assert await heard(socket, len(message)) == message


@v311("6.0.0-1")
async def test_v311_mqtt_6_0_0_1_text_frame_instead_of_connect_closes_the_connection(
    socket: ClientConnection, name: str
) -> None:
    await socket.send(hello(name).decode("ascii"))
    await wait_closed(socket)


@v311("6.0.0-1")
async def test_v311_mqtt_6_0_0_1_text_frame_later_closes_the_connection(
    web: RunningServer, socket: ClientConnection, peers_311: Peers, name: str
) -> None:
    watcher = await peers_311.connect(port=web.port)
    await watcher.subscribe(name)
    await socket.send(hello(name, Will(name, b"gone")))
    assert await heard(socket, 4) == CONNACK
    await socket.send(frame(0x30, text(name) + b"not this").decode("ascii"))
    await wait_closed(socket)
    assert await watcher.receive(Publish) == Publish(name, b"gone")


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@v311("6.0.0-2")
async def test_v311_mqtt_6_0_0_2_packets_may_span_frames_and_share_them(
    socket: ClientConnection, name: str, size: int
) -> None:
    messages = b"".join(frame(0x30, text(name) + b"%d" % number * 5) for number in range(10))
    data = hello(name) + frame(0x82, b"\x00\x01" + text(name) + b"\x00") + messages
    for start in range(0, len(data), size):
        await socket.send(data[start : start + size])
    answer = CONNACK + b"\x90\x03\x00\x01\x00" + messages
    assert await heard(socket, len(answer)) == answer


@v311("6.0.0-2")
async def test_v311_mqtt_6_0_0_2_packets_may_span_the_fragments_of_a_message(
    socket: ClientConnection, name: str
) -> None:
    await socket.send([hello(name)[:5], b"", hello(name)[5:] + PINGREQ[:1], PINGREQ[1:] + PINGREQ])
    answer = CONNACK + PINGRESP * 2
    assert await heard(socket, len(answer)) == answer


@pytest.mark.parametrize("offered", [["mqtt"], ["mqttv3.1", "mqtt"], ["mqtt", "other"]])
@v311("6.0.0-4")
async def test_v311_mqtt_6_0_0_4_server_selects_the_subprotocol_mqtt(
    address: str, offered: list[str]
) -> None:
    async with connect(address, subprotocols=[Subprotocol(each) for each in offered]) as socket:
        assert socket.subprotocol == "mqtt"


@pytest.mark.parametrize("offered", [[], ["other"]])
@v311("6.0.0-4")
async def test_v311_mqtt_6_0_0_4_client_that_does_not_offer_it_is_not_let_in(
    address: str, offered: list[str]
) -> None:
    with pytest.raises(InvalidStatus) as refusal:
        await connect(address, subprotocols=[Subprotocol(each) for each in offered] or None)
    assert refusal.value.response.status_code == 400
