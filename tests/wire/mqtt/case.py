"""What one entry of the catalogue is, and how entries are written down."""

from collections.abc import Iterator

from msgspec import Struct

from penstock.wire.mqtt import (
    AckRun,
    MqttWireError,
    Packet,
    PacketReader,
    PubAck,
    PubComp,
    PubRec,
    PubRel,
    Reply,
    RunReader,
    TopicNameCache,
    Version,
)
from penstock.wire.mqtt.ack_runs import PUBACK, PUBCOMP, PUBREC, PUBREL

V3, V5 = (Version.V311,), (Version.V5,)
BOTH = V3 + V5

LIMIT_BYTES = 300
"""What the readers of the catalogue take at most."""
ALIASES = 2
"""The topic alias maximum of who reads the catalogue as a server."""


class Case(Struct, frozen=True):
    """Bytes and what they mean in one version: a packet or an error.

    `is_shortest` is whether the encoder gives the same bytes back; `statement` is the clause it shows.
    """

    name: str
    version: Version
    data: bytes
    packet: Packet | None = None
    error: type[MqttWireError] | None = None
    statement: str = ""
    is_shortest: bool = True

    def __str__(self) -> str:
        return f"{self.version.name}: {self.name}"


def frame(first: int, body: bytes) -> bytes:
    """A packet with the length that its body has."""
    assert len(body) < 128, "a longer case writes its own length"
    return bytes((first, len(body))) + body


def connect(level: int, rest: bytes) -> bytes:
    """A CONNECT of this level; `rest` starts with its flags."""
    return frame(0x10, b"\x00\x04MQTT" + bytes((level,)) + rest)


def good(
    name: str,
    versions: tuple[Version, ...],
    data: bytes,
    packet: Packet,
    statement: str = "",
    *,
    is_shortest: bool = True,
) -> Iterator[Case]:
    """A packet as it should be, once for each version that has it."""
    for version in versions:
        yield Case(name, version, data, packet, None, statement, is_shortest)


def bad(
    name: str,
    versions: tuple[Version, ...],
    data: bytes,
    error: type[MqttWireError],
    statement: str = "",
) -> Iterator[Case]:
    """Bytes that must be refused, once for each version."""
    for version in versions:
        yield Case(name, version, data, None, error, statement)


def separate(acks: AckRun) -> list[Packet]:
    """A run of acknowledgements as the packets that it stands for."""
    kinds: dict[int, type[Reply]] = {PUBACK: PubAck, PUBREC: PubRec, PUBREL: PubRel, PUBCOMP: PubComp}
    return [kinds[acks.kind](packet_id, acks.reason) for packet_id in acks.packet_ids]


def reading(version: Version) -> PacketReader:
    """A reader of packets that has got as far as knowing the version."""
    return PacketReader(LIMIT_BYTES, version)


def serving(version: Version) -> RunReader:
    """A reader of runs whose client has just said CONNECT."""
    reader = RunReader(LIMIT_BYTES, TopicNameCache(), ALIASES)
    no_properties = b"\x00" if version is Version.V5 else b""
    assert reader.feed(connect(version, b"\x02\x00\x00" + no_properties + b"\x00\x01c"))
    return reader
