"""MQTT control packets as values, the same for both versions; `encode.py` and `decode.py` convert them.

Fields that 3.1.1 does not have keep their defaults.
"""

from enum import IntEnum

from msgspec import Struct

from penstock.wire.mqtt.properties import NO_PROPERTIES, PacketProperties
from penstock.wire.mqtt.reasons import ReasonCode


class Version(IntEnum):
    """The protocol level that CONNECT carries."""

    V311 = 4
    V5 = 5


class PacketType(IntEnum):
    """The upper four bits of the first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Packet(Struct, frozen=True, gc=False):
    """Anything that travels between a client and a server."""


class Will(Struct, frozen=True, gc=False):
    """Will: the message a server publishes when its client is lost."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: PacketProperties = NO_PROPERTIES


class Connect(Packet, frozen=True, gc=False):
    """First packet of a client: identity, options, and will.

    `clean_start` is what 3.1.1 calls Clean Session. None means that a field is absent. MQTT 3.1 is version
    3.1.1 with `is_v31` set. `is_bridge` is the high bit of the level, by which bridges of mosquitto ask for
    No Local and Retain As Published where their version has neither.
    """

    client_id: str
    version: Version = Version.V311
    clean_start: bool = True
    keep_alive: int = 0
    user_name: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: PacketProperties = NO_PROPERTIES
    is_v31: bool = False
    is_bridge: bool = False


class ConnAck(Packet, frozen=True, gc=False):
    """Response of the server to CONNECT; `reason` is a `ReturnCode` in 3.1.1 and a `ReasonCode` in 5."""

    session_present: bool = False
    reason: int = 0
    properties: PacketProperties = NO_PROPERTIES


class Publish(Packet, frozen=True, gc=False):
    """One message. At QoS 0 the packet identifier is zero, because there is none."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: PacketProperties = NO_PROPERTIES


class Reply(Packet, frozen=True, gc=False):
    """Common fields of PUBACK, PUBREC, PUBREL and PUBCOMP."""

    packet_id: int
    reason: int = ReasonCode.SUCCESS
    properties: PacketProperties = NO_PROPERTIES


class PubAck(Reply, frozen=True, gc=False):
    """A QoS 1 message was taken over, or refused."""


class PubRec(Reply, frozen=True, gc=False):
    """A QoS 2 message was taken over, or refused."""


class PubRel(Reply, frozen=True, gc=False):
    """The sender of a QoS 2 message has seen its PUBREC and will not send the message again."""


class PubComp(Reply, frozen=True, gc=False):
    """A QoS 2 message is done with; its packet identifier is free."""


class Request(Struct, frozen=True, gc=False):
    """One filter of a SUBSCRIBE with its options."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(Packet, frozen=True, gc=False):
    """Filters a client wants, at least one."""

    packet_id: int
    requests: tuple[Request, ...]
    properties: PacketProperties = NO_PROPERTIES


class SubAck(Packet, frozen=True, gc=False):
    """Granted QoS or failure for each filter, in order."""

    packet_id: int
    reasons: tuple[int, ...]
    properties: PacketProperties = NO_PROPERTIES


class Unsubscribe(Packet, frozen=True, gc=False):
    """Filters a client no longer wants, at least one."""

    packet_id: int
    filters: tuple[str, ...]
    properties: PacketProperties = NO_PROPERTIES


class UnsubAck(Packet, frozen=True, gc=False):
    """Outcome for each filter; in 3.1.1 it has no reasons."""

    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: PacketProperties = NO_PROPERTIES


class PingReq(Packet, frozen=True, gc=False):
    """A client says that it is still there."""


class PingResp(Packet, frozen=True, gc=False):
    """And so is the server."""


class Disconnect(Packet, frozen=True, gc=False):
    """The last packet of a connection; in 3.1.1 only a client sends it, without a reason."""

    reason: int = ReasonCode.SUCCESS
    properties: PacketProperties = NO_PROPERTIES


class Auth(Packet, frozen=True, gc=False):
    """A step of extended authentication, which only MQTT 5 has; it names its method."""

    reason: int = ReasonCode.SUCCESS
    properties: PacketProperties = NO_PROPERTIES
