"""MQTT 3.1.1 byte by byte: packets that no encoder would write, and what the server says to them."""

import asyncio
import contextlib
from collections.abc import Iterable

from penstock.wire.mqtt import Packet, Version, encode_packet
from tests.doors.mqtt.peers import TIMEOUT_S, Peers
from tests.wire.mqtt.case import connect as connect_of_level
from tests.wire.mqtt.case import frame

__all__ = ["connect", "converse", "ending", "frame", "refusal", "text"]


def text(value: str | bytes) -> bytes:
    """A string, or what stands in its place, with its length."""
    data = value.encode() if isinstance(value, str) else value
    return len(data).to_bytes(2, "big") + data


def connect(flags: int, *payload: bytes) -> bytes:
    """A CONNECT without keep alive and with these fields in its payload."""
    return connect_of_level(Version.V311, bytes((flags, 0, 0)) + b"".join(payload))


async def refusal(peers: Peers, data: bytes) -> list[Packet]:
    """All that the server says to first bytes before it closes."""
    peer = await peers.open(Version.V311)
    await peer.send_bytes(data)
    return await peer.last_words()


async def ending(peers: Peers, *said: bytes | Packet) -> list[Packet]:
    """All that the server says, before it closes, to a client that it had let in."""
    peer = await peers.connect("", Version.V311)
    for each in said:
        await peer.send_bytes(encode_packet(each, Version.V311) if isinstance(each, Packet) else each)
    return await peer.last_words()


async def converse(port: int, turns: Iterable[tuple[bytes, bytes]]) -> None:
    """Say bytes and hear exactly the bytes that should answer them, turn by turn."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for said, heard in turns:
            writer.write(said)
            async with asyncio.timeout(TIMEOUT_S):
                assert await reader.readexactly(len(heard)) == heard
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
