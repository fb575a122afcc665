"""The catalogue of byte cases, and the tables of the standard that cases can be made from.

Written by hand from MQTT 3.1.1 and 5.0, so that the codec is measured against something it did not
make itself. `GOOD` and `BAD_HUFFMAN` are single packets; `SERVER` is what only a reader of clients refuses.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from penstock.wire.mqtt import InvalidTopicAlias, MalformedPacket, ProtocolViolation, Version
from tests.wire.mqtt.bad_packets import BAD
from tests.wire.mqtt.case import V5, Case, bad, frame
from tests.wire.mqtt.good_packets import GOOD

__all__ = ["BAD", "DERIVED", "GOOD", "HOLDERS", "PROPERTIES", "REASONS", "SERVER", "Property", "holding"]

SERVER: tuple[Case, ...] = (
    *bad(
        "alias one above the maximum",
        V5,
        b"\x30\x07\x00\x01t\x03\x23\x00\x03",
        InvalidTopicAlias,
        "MQTT-3.3.2-9",
    ),
    *bad("the largest alias", V5, b"\x30\x07\x00\x01t\x03\x23\xff\xff", InvalidTopicAlias, "MQTT-3.2.2-17"),
    *bad("alias that was never defined", V5, b"\x30\x06\x00\x00\x03\x23\x00\x01", ProtocolViolation),
    *bad(
        "alias other than the one defined",
        V5,
        b"\x30\x07\x00\x01t\x03\x23\x00\x02\x30\x06\x00\x00\x03\x23\x00\x01",
        ProtocolViolation,
    ),
    *bad("identifier from a client", V5, b"\x30\x06\x00\x01t\x02\x0b\x01", ProtocolViolation, "MQTT-3.3.4-6"),
)


class Property(Struct, frozen=True):
    """One row of MQTT 5 table 2-4: a value on the wire, what it means, and which packets may have it."""

    name: str
    number: int
    raw: bytes
    value: Any
    holders: str
    out_of_range: bytes | None = None
    is_repeatable: bool = False


_ACKS = "PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK"
_ALL = f"CONNECT CONNACK PUBLISH WILL SUBSCRIBE UNSUBSCRIBE DISCONNECT AUTH {_ACKS}"

PROPERTIES: tuple[Property, ...] = (
    Property("payload_format", 0x01, b"\x01", 1, "PUBLISH WILL", b"\x02"),
    Property("message_expiry", 0x02, b"\x00\x01\x00\x00", 65536, "PUBLISH WILL"),
    Property("content_type", 0x03, b"\x00\x02\xc3\xa9", "é", "PUBLISH WILL"),
    Property("response_topic", 0x08, b"\x00\x01r", "r", "PUBLISH WILL"),
    Property("correlation_data", 0x09, b"\x00\x01\xff", b"\xff", "PUBLISH WILL"),
    Property("subscription_ids", 0x0B, b"\x80\x01", (128,), "PUBLISH SUBSCRIBE", b"\x00"),
    Property("session_expiry", 0x11, b"\xff\xff\xff\xff", 0xFFFFFFFF, "CONNECT CONNACK DISCONNECT"),
    Property("assigned_client_id", 0x12, b"\x00\x01i", "i", "CONNACK"),
    Property("server_keep_alive", 0x13, b"\x00\x00", 0, "CONNACK"),
    Property("authentication_method", 0x15, b"\x00\x01m", "m", "CONNECT CONNACK AUTH"),
    Property("authentication_data", 0x16, b"\x00\x01\x00", b"\x00", "CONNECT CONNACK AUTH"),
    Property("request_problem_information", 0x17, b"\x00", 0, "CONNECT", b"\x02"),
    Property("will_delay", 0x18, b"\x00\x00\x00\x00", 0, "WILL"),
    Property("request_response_information", 0x19, b"\x01", 1, "CONNECT", b"\xff"),
    Property("response_information", 0x1A, b"\x00\x00", "", "CONNACK"),
    Property("server_reference", 0x1C, b"\x00\x01s", "s", "CONNACK DISCONNECT"),
    Property("reason_string", 0x1F, b"\x00\x01w", "w", f"CONNACK DISCONNECT AUTH {_ACKS}"),
    Property("receive_maximum", 0x21, b"\x00\x01", 1, "CONNECT CONNACK", b"\x00\x00"),
    Property("topic_alias_maximum", 0x22, b"\x00\x00", 0, "CONNECT CONNACK"),
    Property("topic_alias", 0x23, b"\x00\x01", 1, "PUBLISH"),
    Property("maximum_qos", 0x24, b"\x01", 1, "CONNACK", b"\x02"),
    Property("retain_available", 0x25, b"\x00", 0, "CONNACK", b"\x02"),
    Property("user", 0x26, b"\x00\x01k\x00\x01v", (("k", "v"),), _ALL, is_repeatable=True),
    Property("maximum_packet_size", 0x27, b"\x00\x00\x00\x01", 1, "CONNECT CONNACK", b"\x00\x00\x00\x00"),
    Property("wildcard_subscription_available", 0x28, b"\x00", 0, "CONNACK", b"\x02"),
    Property("subscription_ids_available", 0x29, b"\x01", 1, "CONNACK", b"\x02"),
    Property("shared_subscription_available", 0x2A, b"\x01", 1, "CONNACK", b"\x02"),
)

HOLDERS: dict[str, tuple[int, bytes, bytes]] = {
    # First byte, what stands before the properties, and what after them.
    "CONNECT": (0x10, b"\x00\x04MQTT\x05\x02\x00\x00", b"\x00\x01c"),
    "WILL": (0x10, b"\x00\x04MQTT\x05\x06\x00\x00\x00\x00\x01c", b"\x00\x01w\x00\x00"),
    "CONNACK": (0x20, b"\x00\x00", b""),
    "PUBLISH": (0x30, b"\x00\x01t", b"x"),
    "PUBACK": (0x40, b"\x00\x01\x00", b""),
    "PUBREC": (0x50, b"\x00\x01\x00", b""),
    "PUBREL": (0x62, b"\x00\x01\x00", b""),
    "PUBCOMP": (0x70, b"\x00\x01\x00", b""),
    "SUBSCRIBE": (0x82, b"\x00\x01", b"\x00\x01f\x00"),
    "SUBACK": (0x90, b"\x00\x01", b"\x00"),
    "UNSUBSCRIBE": (0xA2, b"\x00\x01", b"\x00\x01f"),
    "UNSUBACK": (0xB0, b"\x00\x01", b"\x00"),
    "DISCONNECT": (0xE0, b"\x00", b""),
    "AUTH": (0xF0, b"\x18", b""),
}


def holding(holder: str, content: bytes) -> bytes:
    """A packet of this kind with these properties, and an authentication method where one is needed."""
    first, before, after = HOLDERS[holder]
    needs_method = holder == "AUTH" or (holder == "CONNECT" and content[:1] == b"\x16")
    if needs_method and content[:1] != b"\x15":
        content = b"\x15\x00\x01m" + content
    return frame(first, before + bytes((len(content),)) + content + after)


def _derived() -> Iterator[Case]:
    """Every property twice, cut short, out of its range, and in every packet that may not have it."""
    for row in PROPERTIES:
        content = bytes((row.number,)) + row.raw
        for holder in HOLDERS:
            name = f"{row.name} in {holder}"
            if holder not in row.holders.split():
                yield from bad(name, V5, holding(holder, content), MalformedPacket)
                continue
            for size in range(1, len(content)):
                cut = holding(holder, content[:size])
                yield from bad(f"{name}, cut to {size} bytes", V5, cut, MalformedPacket)
            if not row.is_repeatable and (row.name, holder) != ("subscription_ids", "PUBLISH"):
                yield from bad(f"{name}, twice", V5, holding(holder, content * 2), ProtocolViolation)
            if row.out_of_range is not None:
                outside = holding(holder, content[:1] + row.out_of_range)
                yield from bad(f"{name}, out of range", V5, outside, ProtocolViolation)


DERIVED: tuple[Case, ...] = tuple(_derived())

REASONS: dict[tuple[str, Version], tuple[bytes, bytes, str]] = {
    # What stands before and after the reason code, and the codes that may stand there.
    ("CONNACK", Version.V311): (b"\x20\x02\x00", b"", "00 01 02 03 04 05"),
    ("CONNACK", Version.V5): (
        b"\x20\x03\x00",
        b"\x00",
        "00 80 81 82 83 84 85 86 87 88 89 8a 8c 90 95 97 99 9a 9b 9c 9d 9f",
    ),
    ("PUBACK", Version.V5): (b"\x40\x03\x00\x01", b"", "00 10 80 83 87 90 91 97 99"),
    ("PUBREC", Version.V5): (b"\x50\x03\x00\x01", b"", "00 10 80 83 87 90 91 97 99"),
    ("PUBREL", Version.V5): (b"\x62\x03\x00\x01", b"", "00 92"),
    ("PUBCOMP", Version.V5): (b"\x70\x03\x00\x01", b"", "00 92"),
    ("SUBACK", Version.V311): (b"\x90\x03\x00\x01", b"", "00 01 02 80"),
    ("SUBACK", Version.V5): (b"\x90\x04\x00\x01\x00", b"", "00 01 02 80 83 87 8f 91 97 9e a1 a2"),
    ("UNSUBACK", Version.V5): (b"\xb0\x04\x00\x01\x00", b"", "00 11 80 83 87 8f 91"),
    ("DISCONNECT", Version.V5): (
        b"\xe0\x01",
        b"",
        "00 04 80 81 82 83 87 89 8b 8c 8d 8e 8f 90 93 94 95 96 97 98 99 9a 9b 9c 9d 9e 9f a0 a1 a2",
    ),
    ("AUTH", Version.V5): (b"\xf0\x06", b"\x04\x15\x00\x01m", "00 18 19"),
}
"""0x8c in DISCONNECT is in table 2-6 of MQTT 5, though section 3.14.2.1 leaves it out."""
