"""The properties of MQTT 5 packets: one table says name, type and where each may stand.

`PacketProperties` is one struct for all packets; the table below decides what is allowed where, so
encoder and decoder cannot disagree. 3.1.1 packets have none of it.
"""

from collections.abc import Callable
from enum import IntFlag, auto
from typing import Any

from msgspec import Struct

from penstock.wire.mqtt.primitives import Body, encode_blob, encode_text, encode_varint
from penstock.wire.mqtt.reasons import InvalidTopicAlias, MalformedPacket, MqttWireError, ProtocolViolation


class PacketProperties(Struct, frozen=True, gc=False, omit_defaults=True):
    """Every property there is; None or empty means absent."""

    payload_format: int | None = None
    message_expiry: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()
    session_expiry: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_ids_available: int | None = None
    shared_subscription_available: int | None = None


NO_PROPERTIES = PacketProperties()


class In(IntFlag):
    """Packets and places that a property may be in."""

    CONNECT = auto()
    CONNACK = auto()
    PUBLISH = auto()
    WILL = auto()
    PUBACK = auto()
    SUBSCRIBE = auto()
    SUBACK = auto()
    UNSUBSCRIBE = auto()
    UNSUBACK = auto()
    DISCONNECT = auto()
    AUTH = auto()


EVERYWHERE = ~In(0)
REPLIES = In.CONNACK | In.PUBACK | In.SUBACK | In.UNSUBACK | In.DISCONNECT | In.AUTH
MESSAGES = In.PUBLISH | In.WILL


class Kind(Struct, frozen=True):
    """Encoding, decoding and limits of one property."""

    field: str
    allowed: In
    take: Callable[[Body], Any]
    encode: Callable[[Any], bytes]
    valid: Callable[[Any], bool] = lambda value: True
    error: type[MqttWireError] = ProtocolViolation
    """Error for a value out of range."""


def _bit(field: str, allowed: In) -> Kind:
    return Kind(field, allowed, Body.byte, lambda value: bytes((value,)), lambda value: value in (0, 1))


def _short(field: str, allowed: In, least: int = 0, error: type[MqttWireError] = ProtocolViolation) -> Kind:
    return Kind(field, allowed, Body.short, _encode_short, lambda value: least <= value <= 0xFFFF, error)


def _encode_short(value: int) -> bytes:
    return value.to_bytes(2, "big")


def _long(field: str, allowed: In, least: int = 0) -> Kind:
    return Kind(field, allowed, Body.long, _encode_long, lambda value: least <= value <= 0xFFFFFFFF)


def _encode_long(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _text(field: str, allowed: In) -> Kind:
    return Kind(field, allowed, Body.text, encode_text)


def _blob(field: str, allowed: In) -> Kind:
    return Kind(field, allowed, Body.blob, encode_blob)


def _take_pair(body: Body) -> tuple[str, str]:
    return body.text(), body.text()


def _encode_pair(pair: tuple[str, str]) -> bytes:
    return encode_text(pair[0]) + encode_text(pair[1])


TABLE: dict[int, Kind] = {
    0x01: _bit("payload_format", MESSAGES),
    0x02: _long("message_expiry", MESSAGES),
    0x03: _text("content_type", MESSAGES),
    0x08: _text("response_topic", MESSAGES),
    0x09: _blob("correlation_data", MESSAGES),
    0x0B: Kind("subscription_ids", In.PUBLISH | In.SUBSCRIBE, Body.varint, encode_varint, bool),
    0x11: _long("session_expiry", In.CONNECT | In.CONNACK | In.DISCONNECT),
    0x12: _text("assigned_client_id", In.CONNACK),
    0x13: _short("server_keep_alive", In.CONNACK),
    0x15: _text("authentication_method", In.CONNECT | In.CONNACK | In.AUTH),
    0x16: _blob("authentication_data", In.CONNECT | In.CONNACK | In.AUTH),
    0x17: _bit("request_problem_information", In.CONNECT),
    0x18: _long("will_delay", In.WILL),
    0x19: _bit("request_response_information", In.CONNECT),
    0x1A: _text("response_information", In.CONNACK),
    0x1C: _text("server_reference", In.CONNACK | In.DISCONNECT),
    0x1F: _text("reason_string", REPLIES),
    0x21: _short("receive_maximum", In.CONNECT | In.CONNACK, 1),
    0x22: _short("topic_alias_maximum", In.CONNECT | In.CONNACK),
    0x23: _short("topic_alias", In.PUBLISH, 1, InvalidTopicAlias),  # MQTT-3.3.2-8
    0x24: _bit("maximum_qos", In.CONNACK),
    0x25: _bit("retain_available", In.CONNACK),
    0x26: Kind("user", EVERYWHERE, _take_pair, _encode_pair),
    0x27: _long("maximum_packet_size", In.CONNECT | In.CONNACK, 1),
    0x28: _bit("wildcard_subscription_available", In.CONNACK),
    0x29: _bit("subscription_ids_available", In.CONNACK),
    0x2A: _bit("shared_subscription_available", In.CONNACK),
}
REPEATABLE = {"user", "subscription_ids"}
"""Properties whose value is a tuple."""


def take_properties(body: Body, where: In) -> PacketProperties:
    """The properties of one packet, each checked against the table."""
    section = body.section()
    if not section:
        return NO_PROPERTIES
    values: dict[str, Any] = {}
    while section:
        kind = TABLE.get(section.varint())
        if kind is None or not kind.allowed & where:
            raise MalformedPacket("property unknown or not allowed here")  # MQTT 5 section 2.2.2.2
        value = kind.take(section)
        if not kind.valid(value):
            raise kind.error(f"{kind.field} out of range")
        if kind.field in values and not _may_repeat(kind, where):
            raise ProtocolViolation(f"{kind.field} given twice")
        if kind.field in REPEATABLE:
            values.setdefault(kind.field, []).append(value)
        else:
            values[kind.field] = value
    for field in REPEATABLE & values.keys():
        values[field] = tuple(values[field])
    return PacketProperties(**values)


def _may_repeat(kind: Kind, where: In) -> bool:
    """A message names every subscription it is for; a SUBSCRIBE gives at most one identifier."""
    return kind.field in REPEATABLE and not (kind.field == "subscription_ids" and where is In.SUBSCRIBE)


def encode_properties(properties: PacketProperties, where: In) -> bytes:
    """The properties with their length, in the table's order.

    Raises:
        ValueError: for a property that may not stand there, is out of range or given too often.
    """
    if properties is NO_PROPERTIES:
        return b"\x00"
    parts: list[bytes] = []
    for identifier, kind in TABLE.items():
        value = getattr(properties, kind.field)
        if value is None or value == ():
            continue
        if not kind.allowed & where:
            raise ValueError(f"{kind.field} is not allowed here")
        each_value = value if kind.field in REPEATABLE else (value,)
        if len(each_value) > 1 and not _may_repeat(kind, where):
            raise ValueError(f"{kind.field} given twice")
        for each in each_value:
            if not kind.valid(each):
                raise ValueError(f"{kind.field} out of range")
            parts += (bytes((identifier,)), kind.encode(each))
    encoded = b"".join(parts)
    return encode_varint(len(encoded)) + encoded
