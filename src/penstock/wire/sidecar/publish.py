"""Fast coding of NexusD's `Publish`: nearly all requests have a topic and a payload, and nothing else.

Every other request is decoded by protobuf, which also decides what is malformed.
"""

from penstock.wire.sidecar.fields import number_field

_TOPIC, _PAYLOAD = 0x0A, 0x12
_SHORT = 0x80
"""Lengths below this have one byte."""
_LEAST_BYTES = 4
"""Bytes of a topic and a payload that are empty."""
_SUCCESS_AND_ID = b"\x08\x01\x12"  # the first with its value
_SUBSCRIBERS, _DROPPED, _BLOCKED = b"\x18", b"\x28", b"\x30"


def read_plain_publish(data: bytes) -> tuple[str, bytes] | None:
    """Topic and payload of a `PublishRequest`; None if it has more, is long, or cannot be decoded here."""
    end = len(data)
    if end < _LEAST_BYTES or data[0] != _TOPIC:
        return None
    size = data[1]
    stop = 2 + size
    start = stop + 2
    if size >= _SHORT or start > end or data[stop] != _PAYLOAD:
        return None
    size = data[stop + 1]
    if size >= _SHORT:
        if start == end or data[start] >= _SHORT:
            return None
        size = size - _SHORT + (data[start] << 7)
        start += 1
    if start + size != end:
        return None
    try:
        return data[2:stop].decode(), data[start:]
    except UnicodeDecodeError:
        return None


def encode_published(message_id: bytes, subscribers: int, dropped: int, blocked: int) -> bytes:
    """Encode the `PublishResponse` to a message that was published.

    Args:
        message_id: of at most 127 bytes.
    """
    response = b"%b%c%b" % (_SUCCESS_AND_ID, len(message_id), message_id)
    if subscribers:
        response += number_field(_SUBSCRIBERS, subscribers)
    if dropped or blocked:
        response += number_field(_DROPPED, dropped) + number_field(_BLOCKED, blocked)
    return response
