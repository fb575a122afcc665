"""PUBLISH frames for subscribers: what a run becomes on its way out.

A frame is split where the packet identifier goes, so that all subscribers at QoS 1 and 2 share
everything else. Where a run's own bytes are already the right frame they are used as they are.
"""

from functools import lru_cache

from penstock.model import Properties, Run
from penstock.wire.mqtt.primitives import encode_text, encode_varint
from penstock.wire.mqtt.properties import In, PacketProperties, encode_properties

DUP = 0x08

_encode_topic = lru_cache(maxsize=4_096)(encode_text)


def encode_frame(run: Run, index: int, qos: int, retain: bool, properties: bytes) -> tuple[bytes, bytes]:
    """What stands before and after the packet identifier of one message.

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
    """The property section of a PUBLISH to an MQTT 5 subscriber.

    `marks` are user properties of ours, which follow those of the publisher.
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
