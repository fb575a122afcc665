"""MQTT 5.0, section 6: WebSocket as transport."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode
from websockets.typing import Subprotocol

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Packet,
    PacketReader,
    PingReq,
    PingResp,
    Publish,
    Request,
    SubAck,
    Subscribe,
    Version,
    Will,
    encode_packet,
)
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import TIMEOUT_S, Peers, payloads
from tests.support.servers import RunningServer, StartServer

MQTT = Subprotocol("mqtt")
LARGE_BYTES = 1024 * 1024

Enter = Callable[..., Awaitable["WebPeer"]]


class WebPeer:
    """A client whose packets are put into frames by the test."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._reader = PacketReader(2 * LARGE_BYTES, Version.V5)
        self._packets: list[Packet] = []

    async def send(self, *packets: Packet) -> None:
        """Send packets, all of them in one frame."""
        await self.socket.send(b"".join(encode_packet(packet, Version.V5) for packet in packets))

    async def take(self) -> Packet:
        """The next packet; whatever comes must be in binary frames."""
        while not self._packets:
            data = await self.socket.recv()
            assert isinstance(data, bytes), data
            self._packets += self._reader.feed(data)  # type: ignore[arg-type]
            assert self._reader.error is None
        return self._packets.pop(0)

    async def close_code(self) -> int | None:
        """The code that the server closes with."""
        with pytest.raises(ConnectionClosed):
            while True:
                await self.socket.recv()
        return self.socket.close_code


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
async def enter(address: str) -> AsyncIterator[Enter]:
    """Lets clients in through a WebSocket."""
    sockets: list[ClientConnection] = []

    async def enter(will: Will | None = None) -> WebPeer:
        socket = await connect(address, subprotocols=[MQTT], open_timeout=TIMEOUT_S, max_size=None)
        sockets.append(socket)
        peer = WebPeer(socket)
        await peer.send(Connect("", Version.V5, will=will))
        connack = await peer.take()
        assert isinstance(connack, ConnAck)
        assert connack.reason == 0
        return peer

    yield enter
    for socket in sockets:
        await socket.close()


@v5("6.0.0-1")
async def test_v5_mqtt_6_0_0_1_everything_comes_in_binary_frames(enter: Enter, name: str) -> None:
    peer = await enter()
    await peer.send(Subscribe(1, (Request(name),)))
    assert await peer.take() == SubAck(1, (0,))
    await peer.send(Publish(name, b"x" * LARGE_BYTES))
    assert payloads([await peer.take()]) == [b"x" * LARGE_BYTES]


@v5("6.0.0-1")
async def test_v5_mqtt_6_0_0_1_text_frame_ends_the_connection(
    web: RunningServer, peers: Peers, enter: Enter, name: str
) -> None:
    watcher = await peers.connect(port=web.port)
    await watcher.subscribe(name)
    peer = await enter(Will(name, b"last will"))
    await peer.socket.send(encode_packet(PingReq(), Version.V5).decode("latin-1"))
    assert await peer.close_code() == CloseCode.UNSUPPORTED_DATA
    assert payloads([await watcher.receive(Publish)]) == [b"last will"]


@v5("6.0.0-1")
async def test_v5_mqtt_6_0_0_1_text_frame_instead_of_connect_ends_the_connection(address: str) -> None:
    async with connect(address, subprotocols=[MQTT]) as socket:
        await socket.send("hello")
        assert await WebPeer(socket).close_code() == CloseCode.UNSUPPORTED_DATA


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@v5("6.0.0-2", "4.2.0-1")
async def test_v5_mqtt_6_0_0_2_packets_may_span_frames_and_share_them(
    enter: Enter, name: str, size: int
) -> None:
    peer = await enter()
    bodies = [b"%d" % number * number for number in range(20)]
    packets: list[Packet] = [Subscribe(1, (Request(name),)), *(Publish(name, body) for body in bodies)]
    data = b"".join(encode_packet(packet, Version.V5) for packet in packets)
    for start in range(0, len(data), size):
        await peer.socket.send(data[start : start + size])
    assert await peer.take() == SubAck(1, (0,))
    assert payloads([await peer.take() for _ in bodies]) == bodies


@v5("6.0.0-2")
async def test_v5_mqtt_6_0_0_2_packet_in_fragments_of_one_message_is_read(enter: Enter) -> None:
    peer = await enter()
    await peer.socket.send([b"\xc0", b"", b"\x00\xc0", b"\x00"])
    assert [await peer.take() for _ in range(2)] == [PingResp(), PingResp()]


@v5("6.0.0-4")
async def test_v5_mqtt_6_0_0_4_server_selects_the_subprotocol_mqtt(address: str) -> None:
    for offered in ([MQTT], [Subprotocol("other"), MQTT]):
        async with connect(address, subprotocols=offered) as socket:
            assert socket.subprotocol == MQTT


@v5("6.0.0-4")
async def test_v5_mqtt_6_0_0_4_client_that_does_not_offer_it_is_not_let_in(address: str) -> None:
    for offered in (None, [Subprotocol("other")]):
        with pytest.raises(InvalidStatus) as refusal:
            await connect(address, subprotocols=offered)
        assert refusal.value.response.status_code == 400
