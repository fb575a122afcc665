"""How the server ends a connection, and bytes that no encoder would write to make it do so."""

from penstock.wire.mqtt import Disconnect, Packet, Version, encode_packet
from penstock.wire.mqtt.primitives import encode_varint
from tests.doors.mqtt.peers import Peer

SMALLEST_BYTES = 64
"""A Maximum Packet Size with room for CONNACK and little more."""


async def ending_of(peer: Peer) -> int:
    """The reason of the DISCONNECT that the server sends next, and after it nothing but the end."""
    words = await peer.last_words()
    assert len(words) == 1, words
    assert isinstance(words[0], Disconnect), words
    return words[0].reason


async def ending_after(peer: Peer, data: bytes) -> int:
    """The same, in answer to these bytes."""
    await peer.send_bytes(data)
    return await ending_of(peer)


def raw(first: int, body: bytes) -> bytes:
    """A packet with any first byte and any body."""
    return bytes((first,)) + encode_varint(len(body)) + body


def size_of(packet: Packet) -> int:
    """How many bytes a packet takes."""
    return len(encode_packet(packet, Version.V5))
