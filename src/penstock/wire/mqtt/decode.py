"""Bytes of one whole packet to a value, strictly: what the specification forbids raises.

`decode_packet` gets the first byte and the body; finding where a packet ends is the reader's work.

Topic names that are checked once, and known from then on.
"""

from collections.abc import Callable

from penstock.wire.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
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
from penstock.wire.mqtt.primitives import Body, decode_text
from penstock.wire.mqtt.properties import NO_PROPERTIES, In, PacketProperties, take_properties
from penstock.wire.mqtt.reasons import (
    InvalidClientId,
    InvalidTopicName,
    MalformedPacket,
    ProtocolViolation,
    ReturnCode,
    UnsupportedVersion,
)

# The lower four bits of the first byte are fixed for all but PUBLISH (MQTT-2.1.3-1).
RESERVED_FLAGS: dict[int, int] = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}

# The reason codes that each packet may carry; MQTT-3.2.2-8 and the like for the other packets.
CONNACK_REASONS = frozenset(
    {0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99}
    | {0x9A, 0x9B, 0x9C, 0x9D, 0x9F}
)
CONNACK_REASONS_311 = frozenset(ReturnCode)
_ACK_REASONS = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_RELEASE_REASONS = frozenset({0x00, 0x92})
_SUBACK_REASONS = frozenset({0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2})
_SUBACK_REASONS_311 = frozenset({0, 1, 2, 0x80})
_UNSUBACK_REASONS = frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91})
_DISCONNECT_REASONS = frozenset(
    {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90}
    | set(range(0x93, 0xA3))
)
_AUTH_REASONS = frozenset({0x00, 0x18, 0x19})
OLD_NAME = b"MQIsdp"
VERSIONS = {
    (OLD_NAME, 3): Version.V311,  # 3.1 differs from 3.1.1 in nothing that a server has to do
    (b"MQTT", 4): Version.V311,
    (b"MQTT", 5): Version.V5,
}
"""Version by protocol name and level of CONNECT."""
BRIDGE_BIT = 0x80
"""Bit of the level by which a bridge of mosquitto says what it is (`try_private`)."""
_NAMES_LIMIT = 65_536
_MARKS = 131_072
_NAME_LIMIT_BYTES = 256  # longer names are checked each time: remembered, they could fill the memory


def decode_packet(first: int, body: Body, version: Version) -> Packet:
    """The packet that starts with this byte and has this body."""
    kind = first >> 4
    decoder = _DECODERS.get(kind)
    if decoder is None or (kind == PacketType.AUTH and version is Version.V311):
        raise MalformedPacket(f"packet type {kind}")
    if kind != PacketType.PUBLISH and first & 0x0F != RESERVED_FLAGS.get(kind, 0):
        raise MalformedPacket("reserved flags")  # MQTT-2.1.3-1
    packet = decoder(first, body, version)
    body.finish()
    return packet


def check_topic_name(topic: str) -> None:
    """A name to publish to has no wildcards (MQTT-3.3.2-2)."""
    if "+" in topic or "#" in topic:
        raise InvalidTopicName("wildcard in a topic name")


def check_message(properties: PacketProperties) -> None:
    """A response topic is a topic name like any other (MQTT-3.3.2-14, MQTT-4.7.3-1)."""
    if properties.response_topic is not None:
        if not properties.response_topic:
            raise InvalidTopicName("response topic without a character")
        check_topic_name(properties.response_topic)


def _properties(body: Body, version: Version, where: In) -> PacketProperties:
    return take_properties(body, where) if version is Version.V5 else NO_PROPERTIES


def _reason(body: Body, allowed: frozenset[int]) -> int:
    value = body.byte()
    if value not in allowed:
        raise ProtocolViolation(f"reason code 0x{value:02x}")
    return value


def _connect(first: int, body: Body, version: Version) -> Connect:
    name, level = body.blob(), body.byte()
    is_bridge = bool(level & BRIDGE_BIT)
    found = VERSIONS.get((name, level & ~BRIDGE_BIT))
    if found is None or (is_bridge and found is Version.V5):  # MQTT 5 has subscription options instead
        raise UnsupportedVersion(f"protocol {name[:10].decode(errors='replace')!r} level {level}")
    version = found
    flags = body.byte()
    will_flag, will_qos = flags & 0x04, flags >> 3 & 3
    if flags & 1:
        raise MalformedPacket("reserved connect flag")  # MQTT-3.1.2-3
    if will_qos == 3 or (not will_flag and flags & 0x38):
        raise MalformedPacket("will flags")  # MQTT-3.1.2-11, -12, -13
    if version is Version.V311 and flags & 0x40 and not flags & 0x80:
        raise MalformedPacket("password without user name")  # MQTT-3.1.2-22 of 3.1.1
    keep_alive = body.short()
    properties = _properties(body, version, In.CONNECT)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolViolation("authentication data without a method")
    client_id = body.text()
    if not client_id and name == OLD_NAME:
        raise InvalidClientId("MQTT 3.1 has no empty client identifiers")
    will = _will(body, version, will_qos, bool(flags & 0x20)) if will_flag else None
    user_name = body.text() if flags & 0x80 else None
    password = body.blob() if flags & 0x40 else None
    clean_start = bool(flags & 2)
    return Connect(
        client_id,
        version,
        clean_start,
        keep_alive,
        user_name,
        password,
        will,
        properties,
        name == OLD_NAME,
        is_bridge,
    )


def _will(body: Body, version: Version, qos: int, retain: bool) -> Will:
    properties = _properties(body, version, In.WILL)
    check_message(properties)
    topic = body.text()
    if not topic:
        raise InvalidTopicName("will without a topic")
    check_topic_name(topic)
    return Will(topic, body.blob(), qos, retain, properties)


def _connack(first: int, body: Body, version: Version) -> ConnAck:
    flags = body.byte()
    if flags & ~1:
        raise MalformedPacket("acknowledge flags")
    reason = _reason(body, CONNACK_REASONS if version is Version.V5 else CONNACK_REASONS_311)
    if flags and reason:
        raise ProtocolViolation("session present in a refusal")  # MQTT-3.2.2-6, 3.2.2-4 of 3.1.1
    return ConnAck(bool(flags), reason, _properties(body, version, In.CONNACK))


def _publish(first: int, body: Body, version: Version) -> Publish:
    qos = first >> 1 & 3
    check_publish_flags(first)
    topic = body.text()
    check_topic_name(topic)
    packet_id = body.packet_id() if qos else 0
    properties = _properties(body, version, In.PUBLISH)
    check_message(properties)
    if not topic and properties.topic_alias is None:
        raise ProtocolViolation("publish without a topic")  # MQTT 5 section 3.3.2.1
    payload = body.rest()
    return Publish(topic, payload, qos, bool(first & 1), bool(first & 8), packet_id, properties)


def check_publish_flags(first: int) -> None:
    """QoS 3 does not exist, and QoS 0 has no duplicates."""
    if first & 0x06 == 0x06:
        raise MalformedPacket("QoS 3")  # MQTT-3.3.1-4
    if first & 0x0E == 0x08:
        raise MalformedPacket("duplicate flag with QoS 0")  # MQTT-3.3.1-2


def _reply(kind: type[Reply], allowed: frozenset[int]) -> Callable[[int, Body, Version], Packet]:
    def decode(first: int, body: Body, version: Version) -> Packet:
        packet_id = body.packet_id()
        if version is Version.V311 or not body:
            return kind(packet_id)
        reason = _reason(body, allowed)
        return kind(packet_id, reason, take_properties(body, In.PUBACK) if body else NO_PROPERTIES)

    return decode


def _subscribe(first: int, body: Body, version: Version) -> Subscribe:
    packet_id = body.packet_id()
    properties = _properties(body, version, In.SUBSCRIBE)
    requests = []
    while body:
        requests.append(_request(body.text(), body.byte(), version))
    if not requests:
        raise ProtocolViolation("subscribe without a filter")  # MQTT-3.8.3-2
    return Subscribe(packet_id, tuple(requests), properties)


def _request(filter: str, options: int, version: Version) -> Request:
    if version is Version.V311:
        if options > 2:
            raise MalformedPacket("requested QoS")  # MQTT-3.8.3-4 of 3.1.1
        return Request(filter, options)
    if options & 0xC0:
        raise MalformedPacket("reserved subscription options")  # MQTT-3.8.3-5
    if options & 3 == 3 or options & 0x30 == 0x30:
        raise ProtocolViolation("QoS 3 or retain handling 3")  # MQTT 5 section 3.8.3.1
    if options & 4 and filter.startswith("$share/"):
        raise ProtocolViolation("No Local on a shared subscription")  # MQTT-3.8.3-4
    return Request(filter, options & 3, bool(options & 4), bool(options & 8), options >> 4 & 3)


def _suback(first: int, body: Body, version: Version) -> SubAck:
    packet_id = body.packet_id()
    properties = _properties(body, version, In.SUBACK)
    allowed = _SUBACK_REASONS if version is Version.V5 else _SUBACK_REASONS_311
    reasons = []
    while body:
        reasons.append(_reason(body, allowed))
    if not reasons:
        raise ProtocolViolation("response without a reason code")  # MQTT-3.9.3-2
    return SubAck(packet_id, tuple(reasons), properties)


def _unsubscribe(first: int, body: Body, version: Version) -> Unsubscribe:
    packet_id = body.packet_id()
    properties = _properties(body, version, In.UNSUBSCRIBE)
    filters = []
    while body:
        filters.append(body.text())
    if not filters:
        raise ProtocolViolation("unsubscribe without a filter")  # MQTT-3.10.3-2
    return Unsubscribe(packet_id, tuple(filters), properties)


def _unsuback(first: int, body: Body, version: Version) -> UnsubAck:
    packet_id = body.packet_id()
    properties = _properties(body, version, In.UNSUBACK)
    reasons = []
    while body and version is Version.V5:
        reasons.append(_reason(body, _UNSUBACK_REASONS))
    if not reasons and version is Version.V5:
        raise ProtocolViolation("response without a reason code")  # MQTT-3.11.3-2
    return UnsubAck(packet_id, tuple(reasons), properties)


def _disconnect(first: int, body: Body, version: Version) -> Disconnect:
    if version is Version.V311 or not body:
        return Disconnect()
    reason = _reason(body, _DISCONNECT_REASONS)
    return Disconnect(reason, take_properties(body, In.DISCONNECT) if body else NO_PROPERTIES)


def _auth(first: int, body: Body, version: Version) -> Auth:
    if not body:
        return Auth()
    reason = _reason(body, _AUTH_REASONS)
    properties = take_properties(body, In.AUTH)
    if properties.authentication_method is None:
        raise ProtocolViolation("no authentication method")  # MQTT 5 section 3.15.2.2.2
    return Auth(reason, properties)


_DECODERS: dict[int, Callable[[int, Body, Version], Packet]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBLISH: _publish,
    PacketType.PUBACK: _reply(PubAck, _ACK_REASONS),
    PacketType.PUBREC: _reply(PubRec, _ACK_REASONS),
    PacketType.PUBREL: _reply(PubRel, _RELEASE_REASONS),
    PacketType.PUBCOMP: _reply(PubComp, _RELEASE_REASONS),
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: lambda first, body, version: PingReq(),
    PacketType.PINGRESP: lambda first, body, version: PingResp(),
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}


class TopicNameCache(dict[bytes, str]):
    """Cache of checked and decoded topic names, shared by all connections of a door.

    A dict that fills itself: a cached name costs one look-up. A name is cached when it is seen a second
    time, so that a flood of new ones does not evict those in use.
    """

    __slots__ = ("_marked", "_marks")

    def __init__(self) -> None:
        self._marks = bytearray(_MARKS)  # by hash: a name like this was seen
        self._marked = 0

    def __missing__(self, raw: bytes) -> str:
        name = decode_text(raw)
        check_topic_name(name)
        if len(raw) <= _NAME_LIMIT_BYTES and self._is_known(hash(raw) % _MARKS):
            if len(self) >= _NAMES_LIMIT:
                self.clear()
            self[raw] = name
        return name

    def _is_known(self, mark: int) -> bool:
        if self._marks[mark]:
            return True
        self._marks[mark] = 1
        self._marked += 1
        if self._marked > _MARKS // 2:  # too many: new names would be taken for known ones
            self._marks = bytearray(_MARKS)
            self._marked = 0
        return False
