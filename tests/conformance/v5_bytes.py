"""MQTT 5 byte by byte: packets that no encoder would write, and what the server says to them."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from penstock.wire.mqtt import ConnAck, Connect, Packet, Version, encode_packet
from penstock.wire.mqtt.primitives import encode_varint
from tests.conformance.endings import raw
from tests.doors.mqtt.peers import TIMEOUT_S, Peers

CLEAN = 0x02
WILL = 0x04
WILL_RETAIN = 0x20
PASSWORD = 0x40
USER = 0x80
NOTHING = b"\x00"
"""A property section without a property."""


def text(value: str | bytes) -> bytes:
    """A string, or what stands in its place, with its length."""
    data = value.encode() if isinstance(value, str) else value
    return len(data).to_bytes(2, "big") + data


def section(*parts: bytes) -> bytes:
    """Properties with their length."""
    data = b"".join(parts)
    return encode_varint(len(data)) + data


def frame(first: int, *parts: bytes) -> bytes:
    """A packet: its first byte and what follows its length."""
    return raw(first, b"".join(parts))


def connect(
    *payload: bytes,
    flags: int = CLEAN,
    properties: bytes = NOTHING,
    name: str = "MQTT",
    level: int = Version.V5,
    keep_alive: int = 60,
) -> bytes:
    """A CONNECT with these fields in its payload."""
    head = text(name) + bytes((level, flags)) + keep_alive.to_bytes(2, "big")
    return frame(0x10, head, properties, *payload)


def publish(
    topic: str | bytes, *properties: bytes, payload: bytes = b"", first: int = 0x30, packet_id: bytes = b""
) -> bytes:
    """A PUBLISH, at QoS 0 unless its first byte says otherwise."""
    return frame(first, text(topic), packet_id, section(*properties), payload)


async def refusal(peers: Peers, first: bytes | Connect, port: int | None = None) -> int:
    """The reason a first packet is refused for: one CONNACK, then the server closes."""
    peer = await peers.open(Version.V5, port)
    await peer.send_bytes(encode_packet(first, Version.V5) if isinstance(first, Connect) else first)
    (connack,) = await peer.last_words()
    assert isinstance(connack, ConnAck), connack
    assert connack.reason >= 0x80
    return connack.reason


class RawPeer:
    """A connection that hands out each packet as the bytes it came in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        """A connection on which nothing has been said yet."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, *packets: Packet) -> None:
        self._writer.write(b"".join(encode_packet(packet, Version.V5) for packet in packets))
        await self._writer.drain()

    async def receive(self) -> bytes:
        """The next packet."""
        async with asyncio.timeout(TIMEOUT_S):
            head = await self._reader.readexactly(2)
            while head[-1] >= 0x80:
                head += await self._reader.readexactly(1)
            size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(head[1:]))
            return head + await self._reader.readexactly(size)

    async def ask(self, packet: Packet) -> bytes:
        """The answer to a packet."""
        await self.send(packet)
        return await self.receive()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
