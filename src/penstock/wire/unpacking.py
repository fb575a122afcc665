"""What the batches of an Arrow stream unpack to, found out before anyone unpacks them.

The buffers of a batch may be compressed, each with its real length before it, and a small body may unpack to
more than there is memory. The heads of messages are FlatBuffers tables; only what leads to these lengths is
read.
"""

from collections.abc import Iterator
from struct import Struct as Layout

from penstock.errors import WireError
from penstock.wire.arrow import Kind, Message, messages
from penstock.wire.flatbuffers import LENGTH, PLACE, find_field, follow, layout_error

_PREFIX_BYTES = 8
_BUFFER = Layout("<qq")
_HEADER, _DATA, _BUFFERS, _COMPRESSION = 8, 6, 8, 10
"""Slots of a message's header, of the batch in a dictionary, and of a batch's buffers and compression."""
_AS_IT_IS = -1


def unpacked_bytes(stream: bytes) -> int:
    """How many bytes all batches and dictionaries of a complete stream have when they are unpacked.

    Raises:
        WireError: these bytes are no complete stream.
    """
    try:
        return sum(_unpacked(stream, each) for each in messages(stream) if each.kind is not Kind.SCHEMA)
    except layout_error:
        raise WireError("a message of an Arrow stream is cut off") from None


def _unpacked(stream: bytes, message: Message) -> int:
    head = message.start + _PREFIX_BYTES
    body = head + int(PLACE.unpack_from(stream, head - PLACE.size)[0])
    batch = follow(stream, find_field(stream, follow(stream, head), _HEADER))
    if message.kind is Kind.DICTIONARY:
        batch = follow(stream, find_field(stream, batch, _DATA))
    if not find_field(stream, batch, _COMPRESSION):
        return message.stop - body
    return sum(_real_lengths(stream, batch, body, message.stop))


def _real_lengths(stream: bytes, batch: int, body: int, stop: int) -> Iterator[int]:
    buffers = follow(stream, find_field(stream, batch, _BUFFERS))
    for number in range(PLACE.unpack_from(stream, buffers)[0]):
        offset, length = _BUFFER.unpack_from(stream, buffers + PLACE.size + number * _BUFFER.size)
        if length <= 0:
            continue
        if offset < 0 or body + offset + length > stop:
            raise WireError("a buffer of an Arrow stream is outside of its message")
        real = LENGTH.unpack_from(stream, body + offset)[0]
        if real < _AS_IT_IS:
            raise WireError("a buffer of an Arrow stream has no length")
        yield length if real == _AS_IT_IS else real
