"""The other side of the MQTT door: a client that says exactly what a test wants, packet by packet.

No test waits for time to pass to prove that nothing comes: `fence` pings and answers what came before the
pong. A PINGRESP may overtake what the server has in hand, so it takes two. A PUBACK comes when its message
has been delivered, so it is a fence for everyone whom the message reaches.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from penstock.client import ConnectionLost, PacketStream
from penstock.wire.mqtt import (
    NO_PROPERTIES,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketProperties,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Reply,
    Request,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from tests.support.servers import is_on_disk

TIMEOUT_S = 20.0
FOR_EVER = 0xFFFFFFFF
SLOW_BUFFER_BYTES = 16 * 1024

AnyPacket = TypeVar("AnyPacket", bound=Packet)

both_versions = pytest.mark.parametrize("version", list(Version), ids=lambda version: version.name)
every_qos = pytest.mark.parametrize("qos", range(3))


class Peer:
    """One connection to a server, in the hands of a test."""

    def __init__(self, stream: PacketStream, *, hears_words: bool = True) -> None:
        self.stream = stream
        self._hears_words = hears_words
        self.connack = ConnAck()
        self._last_id = 0
        self._early: list[Packet] = []  # came while we waited for a pong

    @property
    def version(self) -> Version:
        return self.stream.version

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # Packets

    async def send(self, *packets: Packet) -> None:
        await self.stream.send(*packets)

    async def send_bytes(self, data: bytes) -> None:
        self.stream.write_bytes(data)
        await self.stream.drain()

    async def receive(self, kind: type[AnyPacket], timeout: float = TIMEOUT_S) -> AnyPacket:
        """The next packet, which must be of this kind."""
        packet = await self.take(timeout)
        assert isinstance(packet, kind), packet
        return packet

    async def take(self, timeout: float = TIMEOUT_S) -> Packet:
        """The next packet, whatever it is."""
        packet = self._early.pop(0) if self._early else await self.stream.receive(timeout)
        return packet if self._hears_words else wordless(packet)

    async def receive_all(self, count: int) -> list[Publish]:
        """The next messages, acknowledged as far as that takes one step."""
        messages = [await self.receive(Publish) for _ in range(count)]
        await self.send(*(PubAck(message.packet_id) for message in messages if message.qos == 1))
        return messages

    async def fence(self) -> list[Packet]:
        """Everything that the server had to send until now."""
        await self._settle()
        before, self._early = self._early, []
        return before if self._hears_words else [wordless(packet) for packet in before]

    async def _settle(self) -> None:
        for _ in range(2):
            if is_on_disk():  # what waits for its commit is overtaken by a ping
                await asyncio.sleep(0.03)
            await self.send(PingReq())
            while not isinstance(packet := await self.stream.receive(TIMEOUT_S), PingResp):
                self._early.append(packet)

    async def last_words(self, timeout: float = TIMEOUT_S) -> list[Packet]:
        """Everything the server still sends before it closes."""
        words: list[Packet] = []
        while True:
            try:
                words.append(await self.take(timeout))
            except ConnectionLost:
                return words

    # Exchanges

    async def subscribe(
        self, *filters: str | Request, qos: int = 0, properties: PacketProperties = NO_PROPERTIES
    ) -> Sequence[int]:
        """Subscribe and tell what was granted; the SUBACK must be the next packet."""
        requests = tuple(each if isinstance(each, Request) else Request(each, qos) for each in filters)
        packet = Subscribe(self.next_id(), requests, properties)
        await self.send(packet)
        suback = await self.receive(SubAck)
        assert suback.packet_id == packet.packet_id
        return suback.reasons

    async def unsubscribe(self, *filters: str) -> Sequence[int]:
        packet = Unsubscribe(self.next_id(), filters)
        await self.send(packet)
        unsuback = await self.receive(UnsubAck)
        assert unsuback.packet_id == packet.packet_id
        return unsuback.reasons

    async def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 1,
        *,
        retain: bool = False,
        properties: PacketProperties = NO_PROPERTIES,
    ) -> int:
        """Publish, wait until the message has been delivered, and tell the reason of the acknowledgement."""
        packet_id = self.next_id() if qos else 0
        await self.send(Publish(topic, payload, qos, retain, False, packet_id, properties))
        reply: Reply = PubAck(0)
        if qos:
            reply = await self.receive(PubAck if qos == 1 else PubRec)
            assert reply.packet_id == packet_id
        else:
            await self._settle()
        if qos == 2 and reply.reason < 0x80:
            await self.send(PubRel(packet_id))
            assert await self.receive(PubComp) == PubComp(packet_id)
        return reply.reason

    # Endings

    async def leave(self, packet: Disconnect | None = None) -> None:
        """Say goodbye and wait until the server has closed."""
        await self.send(packet or Disconnect())
        await self.last_words()

    async def cut(self) -> None:
        """End the connection as a broken link does."""
        self.stream.abort()
        await self.last_words()


class Peers:
    """Makes peers, and lets none of them outlive its test.

    Reasons in words are not heard where a test is about the reason itself.
    """

    def __init__(self, port: int, *, hears_words: bool = True) -> None:
        self.port = port
        self._hears_words = hears_words
        self._all: list[Peer] = []

    async def open(self, version: Version = Version.V5, port: int | None = None) -> Peer:
        """A connection on which nothing has been said yet."""
        stream = await PacketStream.open("127.0.0.1", port or self.port, version)
        peer = Peer(stream, hears_words=self._hears_words)
        self._all.append(peer)
        return peer

    async def open_slow(self, port: int | None = None) -> Peer:
        """The same, with little room for what it has not read yet."""
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER_BYTES)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port or self.port))
        streams = await asyncio.open_connection(sock=connection, limit=SLOW_BUFFER_BYTES)
        peer = Peer(PacketStream(*streams), hears_words=self._hears_words)
        self._all.append(peer)
        return peer

    async def connect(
        self,
        client_id: str = "",
        version: Version = Version.V5,
        *,
        clean: bool = True,
        keep_alive: int = 0,
        user: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        expiry: int | None = None,
        properties: PacketProperties | None = None,
        port: int | None = None,
        is_slow: bool = False,
    ) -> Peer:
        """A connection that has been let in; `expiry` is short for that property of MQTT 5."""
        if properties is None:
            is_told = expiry is not None and version is Version.V5
            properties = PacketProperties(session_expiry=expiry) if is_told else NO_PROPERTIES
        peer = await self.open_slow(port) if is_slow else await self.open(version, port)
        await peer.send(Connect(client_id, version, clean, keep_alive, user, password, will, properties))
        peer.connack = await peer.receive(ConnAck)
        assert peer.connack.reason == 0, peer.connack
        return peer

    async def refused(self, packet: Connect, port: int | None = None) -> list[Packet]:
        """What the server has to say to a CONNECT that ends in a closed connection."""
        peer = await self.open(packet.version, port)
        await peer.send(packet)
        return await peer.last_words()

    async def close(self) -> None:
        for peer in self._all:
            await peer.stream.close()


def wordless(packet: Any) -> Any:
    """The same packet without a reason in words."""
    if getattr(packet, "properties", None) is None or packet.properties.reason_string is None:
        return packet
    return replace(packet, properties=replace(packet.properties, reason_string=None))


def payloads(packets: Sequence[Packet]) -> list[bytes]:
    """What messages carry; anything but messages is a mistake."""
    return [packet.payload for packet in packets if isinstance(packet, Publish) or pytest.fail(f"{packet}")]
