"""Encoding of packets for both versions, and of PUBLISH frames for subscribers. The inverse of `decode.py`.

Fields that 3.1.1 does not have (properties, reasons, subscription options) are left out of its packets. A
value that no packet can carry raises `ValueError`. A PUBLISH frame is split at the packet identifier, so
that all subscribers at QoS 1 and 2 share everything else.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from penstock.model import Properties
from penstock.runs import Run
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
from penstock.wire.mqtt.primitives import encode_blob, encode_packet_id, encode_text, encode_varint
from penstock.wire.mqtt.properties import NO_PROPERTIES, In, PacketProperties, encode_properties

PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"
DUP = 0x08
_encode_topic = lru_cache(maxsize=4_096)(encode_text)


def encode_packet(packet: Packet, version: Version) -> bytes:
    """The packet as it continues the wire."""
    if version is Version.V311 and type(packet) is Auth:
        raise ValueError("MQTT 3.1.1 has no AUTH")
    first, body = _ENCODERS[type(packet)](packet, version)
    return bytes((first,)) + encode_varint(len(body)) + body


def _qos(value: int) -> int:
    if value not in (0, 1, 2):
        raise ValueError(f"there is no QoS {value}")  # MQTT-3.3.1-4
    return value


def _properties(properties: PacketProperties, version: Version, where: In) -> bytes:
    return encode_properties(properties, where) if version is Version.V5 else b""


def _connect(packet: Connect, version: Version) -> tuple[int, bytes]:
    will = packet.will
    flags = packet.clean_start << 1
    if will is not None:
        flags |= 0x04 | _qos(will.qos) << 3 | will.retain << 5
    if packet.password is not None:
        flags |= 0x40
    if packet.user_name is not None:
        flags |= 0x80
    level = (3 if packet.is_v31 else packet.version) | packet.is_bridge << 7
    parts = [
        encode_text("MQIsdp" if packet.is_v31 else "MQTT") + bytes((level, flags)),
        _keep_alive(packet.keep_alive),
        _properties(packet.properties, packet.version, In.CONNECT),
        encode_text(packet.client_id),
    ]
    if will is not None:
        parts.append(_will(will, packet.version))
    if packet.user_name is not None:
        parts.append(encode_text(packet.user_name))
    if packet.password is not None:
        parts.append(encode_blob(packet.password))
    return PacketType.CONNECT << 4, b"".join(parts)


def _keep_alive(seconds: int) -> bytes:
    if not 0 <= seconds <= 0xFFFF:
        raise ValueError(f"{seconds} seconds do not fit the keep alive")
    return seconds.to_bytes(2, "big")


def _will(will: Will, version: Version) -> bytes:
    return (
        _properties(will.properties, version, In.WILL) + encode_text(will.topic) + encode_blob(will.payload)
    )


def _connack(packet: ConnAck, version: Version) -> tuple[int, bytes]:
    body = bytes((packet.session_present, packet.reason))
    return PacketType.CONNACK << 4, body + _properties(packet.properties, version, In.CONNACK)


def _publish(packet: Publish, version: Version) -> tuple[int, bytes]:
    first = PacketType.PUBLISH << 4 | packet.dup << 3 | _qos(packet.qos) << 1 | packet.retain
    packet_id = encode_packet_id(packet.packet_id) if packet.qos else b""
    properties = _properties(packet.properties, version, In.PUBLISH)
    return first, encode_text(packet.topic) + packet_id + properties + packet.payload


def _reply(first: int) -> Callable[[Reply, Version], tuple[int, bytes]]:
    def encode(packet: Reply, version: Version) -> tuple[int, bytes]:
        body = encode_packet_id(packet.packet_id)
        return first, body + _optional(packet.reason, packet.properties, version, In.PUBACK)

    return encode


def _optional(reason: int, properties: PacketProperties, version: Version, where: In) -> bytes:
    """Reason and properties, left out as far as MQTT 5 allows."""
    if version is Version.V311 or (not reason and properties == NO_PROPERTIES):
        return b""
    if properties == NO_PROPERTIES:
        return bytes((reason,))
    return bytes((reason,)) + encode_properties(properties, where)


def _subscribe(packet: Subscribe, version: Version) -> tuple[int, bytes]:
    if not packet.requests:
        raise ValueError("subscribe without a filter")  # MQTT-3.8.3-2
    parts = [encode_packet_id(packet.packet_id), _properties(packet.properties, version, In.SUBSCRIBE)]
    for request in packet.requests:
        options = _options(request) if version is Version.V5 else _qos(request.qos)
        parts += (encode_text(request.filter), bytes((options,)))
    return PacketType.SUBSCRIBE << 4 | 2, b"".join(parts)


def _options(request: Request) -> int:
    if request.retain_handling not in (0, 1, 2):
        raise ValueError(f"there is no retain handling {request.retain_handling}")
    flags = request.no_local << 2 | request.retain_as_published << 3
    return _qos(request.qos) | flags | request.retain_handling << 4


def _suback(packet: SubAck, version: Version) -> tuple[int, bytes]:
    properties = _properties(packet.properties, version, In.SUBACK)
    return PacketType.SUBACK << 4, encode_packet_id(packet.packet_id) + properties + bytes(packet.reasons)


def _unsubscribe(packet: Unsubscribe, version: Version) -> tuple[int, bytes]:
    if not packet.filters:
        raise ValueError("unsubscribe without a filter")  # MQTT-3.10.3-2
    parts = [encode_packet_id(packet.packet_id), _properties(packet.properties, version, In.UNSUBSCRIBE)]
    parts += map(encode_text, packet.filters)
    return PacketType.UNSUBSCRIBE << 4 | 2, b"".join(parts)


def _unsuback(packet: UnsubAck, version: Version) -> tuple[int, bytes]:
    body = encode_packet_id(packet.packet_id)
    if version is Version.V5:
        body += encode_properties(packet.properties, In.UNSUBACK) + bytes(packet.reasons)
    return PacketType.UNSUBACK << 4, body


def _disconnect(packet: Disconnect, version: Version) -> tuple[int, bytes]:
    return PacketType.DISCONNECT << 4, _optional(packet.reason, packet.properties, version, In.DISCONNECT)


def _auth(packet: Auth, version: Version) -> tuple[int, bytes]:
    if not packet.reason and packet.properties == NO_PROPERTIES:
        return PacketType.AUTH << 4, b""
    return PacketType.AUTH << 4, bytes((packet.reason,)) + encode_properties(packet.properties, In.AUTH)


_ENCODERS: dict[type[Packet], Callable[[Any, Version], tuple[int, bytes]]] = {
    Connect: _connect,
    ConnAck: _connack,
    Publish: _publish,
    PubAck: _reply(PacketType.PUBACK << 4),
    PubRec: _reply(PacketType.PUBREC << 4),
    PubRel: _reply(PacketType.PUBREL << 4 | 2),
    PubComp: _reply(PacketType.PUBCOMP << 4),
    Subscribe: _subscribe,
    SubAck: _suback,
    Unsubscribe: _unsubscribe,
    UnsubAck: _unsuback,
    PingReq: lambda packet, version: (PacketType.PINGREQ << 4, b""),
    PingResp: lambda packet, version: (PacketType.PINGRESP << 4, b""),
    Disconnect: _disconnect,
    Auth: _auth,
}


def encode_frame(run: Run, index: int, qos: int, retain: bool, properties: bytes) -> tuple[bytes, bytes]:
    """Encode what precedes and what follows the packet identifier of one message.

    `properties` is the whole property section of an MQTT 5 frame, and empty for 3.1.1.
    """
    topic = _encode_topic(run.topic)
    after = properties + run.payload(index)
    length = len(topic) + (2 if qos else 0) + len(after)
    return bytes((0x30 | qos << 1 | retain,)) + encode_varint(length) + topic, after


def publish_properties(
    properties: Properties | None,
    expiry: int | None,
    subscription_ids: tuple[int, ...],
    marks: tuple[tuple[str, str], ...] = (),
) -> bytes:
    """Encode the property section of a PUBLISH to an MQTT 5 subscriber.

    `marks` are user properties of the server, which follow those of the publisher.
    """
    if properties is None:
        if expiry is None and not subscription_ids and not marks:
            return b"\x00"
        given = PacketProperties(message_expiry=expiry, subscription_ids=subscription_ids, user=marks)
    else:
        given = PacketProperties(
            properties.payload_format,
            expiry,
            properties.content_type,
            properties.response_topic,
            properties.correlation_id,
            subscription_ids,
            user=properties.user + marks,
        )
    return encode_properties(given, In.PUBLISH)
