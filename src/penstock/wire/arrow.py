"""Arrow IPC streams, read without the Arrow library: messages by their framing, and the uncompressed size.

A stream is a schema, then dictionaries and record batches, then an end. Each message states its length, so
streams of one schema can be joined without reading the data: the schema once, then what each stream has
between its schema and its end. A repeated dictionary replaces the one before, as the format allows. The data
itself is not checked.

Buffers of a batch may be compressed, each with its real length before it, and a small body may decompress
to more than there is memory. `unpacked_bytes` finds that out first. Heads of messages are FlatBuffers
tables, of which only the fields that lead to these lengths are read. Nothing in them is trusted: a read
beyond the end raises `layout_error`.

The columns of the log, and the metadata key of the statement at the end of its streams, are named here too.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct as Layout
from struct import error as layout_error

from msgspec import Struct

from penstock.errors import WireError

__all__ = ["LENGTH", "PLACE", "find_field", "follow", "layout_error"]

PLACE = Layout("<I")
"""A distance or a count in a FlatBuffers table."""
LENGTH = Layout("<q")
_BACK = Layout("<i")
_SLOT = Layout("<H")
MEDIA_TYPE = "application/vnd.apache.arrow.stream"
END = b"\xff\xff\xff\xff\0\0\0\0"
"""End of a stream."""
_CONTINUATION = 0xFFFFFFFF
_PREFIX = Layout("<Ii")
_KIND_SLOT = 6
_BODY_SLOT = 10
"""Slots of a message's kind and of the length of its body."""
_PREFIX_BYTES = 8
_BUFFER = Layout("<qq")
_HEADER, _DATA, _BUFFERS, _COMPRESSION = 8, 6, 8, 10
"""Slots of a message's header, of the batch in a dictionary, and of a batch's buffers and compression."""
_AS_IT_IS = -1
LOG_COLUMNS = (
    "offset",
    "topic",
    "sequence",
    "epoch",
    "published_at",
    "expires_at",
    "qos",
    "retain",
    "payload",
    "content_type",
    "correlation_id",
    "message_id",
    "client_id",
    "node_id",
    "door",
    "properties",
    "logged_at",
)
"""Columns of the log in Arrow, in their order."""

STATEMENT_KEY = "penstock.statement"
"""Metadata key of the statement that ends an Arrow stream."""


def follow(data: bytes, place: int) -> int:
    """Follow a reference.

    Raises:
        WireError: it is zero.
    """
    if not place:
        raise WireError("a message of an Arrow stream lacks something")
    return place + int(PLACE.unpack_from(data, place)[0])


def find_field(data: bytes, table: int, slot: int) -> int:
    """Return the position of a field in a table; 0 if it is absent.

    Raises:
        WireError: this is not a table.
    """
    slots = table - int(_BACK.unpack_from(data, table)[0])
    if slots < 0:
        raise WireError("not a message of an Arrow stream")
    if slot >= _SLOT.unpack_from(data, slots)[0]:
        return 0
    offset = int(_SLOT.unpack_from(data, slots + slot)[0])
    return table + offset if offset else 0


class Kind(IntEnum):
    """Kind of a message."""

    SCHEMA = 1
    DICTIONARY = 2
    BATCH = 3


class Message(Struct, frozen=True):
    """Position of a message in a stream."""

    kind: Kind
    start: int
    stop: int


class Cut(Struct, frozen=True):
    """A stream without its end: the schema, and everything behind it."""

    schema: memoryview
    body: memoryview


def messages(stream: bytes) -> Iterator[Message]:
    """Iterate over the messages of a complete stream.

    Raises:
        WireError: not a complete stream, or bytes after its end.
    """
    place = 0
    try:
        while True:
            mark, size = _PREFIX.unpack_from(stream, place)
            if mark != _CONTINUATION or size < 0:
                raise WireError("not a message of an Arrow stream")
            if not size:
                break
            head = place + _PREFIX.size
            kind, body_bytes = _read_head(stream, head, head + size)
            stop = head + size + body_bytes
            if body_bytes < 0 or stop > len(stream):
                raise WireError("a message of an Arrow stream is cut off")
            yield Message(kind, place, stop)
            place = stop
    except layout_error:
        raise WireError("an Arrow stream is cut off") from None
    if place + len(END) != len(stream):
        raise WireError("there is something behind the end of an Arrow stream")


def cut(stream: bytes) -> Cut:
    """Split a complete stream into schema and contents, without a copy.

    Raises:
        WireError: not a complete stream of one schema.
    """
    found = list(messages(stream))
    if not found or [message.kind for message in found].count(Kind.SCHEMA) != 1:
        raise WireError("an Arrow stream has one schema")
    if found[0].kind is not Kind.SCHEMA:
        raise WireError("an Arrow stream begins with its schema")
    view = memoryview(stream)
    return Cut(view[: found[0].stop], view[found[0].stop : found[-1].stop])


def _read_head(stream: bytes, start: int, stop: int) -> tuple[Kind, int]:
    """Return the kind of a message and the length of its body, from the FlatBuffers table in its head."""
    if stop > len(stream):
        raise WireError("a message of an Arrow stream is cut off")
    table = follow(stream, start)
    kind_place, body_place = find_field(stream, table, _KIND_SLOT), find_field(stream, table, _BODY_SLOT)
    if not start < kind_place < stop:
        raise WireError("not a message of an Arrow stream")
    try:
        kind = Kind(stream[kind_place])
    except ValueError:
        raise WireError("a message of an Arrow stream is of a kind that none has") from None
    return kind, LENGTH.unpack_from(stream, body_place)[0] if body_place else 0


def unpacked_bytes(stream: bytes) -> int:
    """Return the uncompressed size of all batches and dictionaries of a complete stream.

    Raises:
        WireError: not a complete stream.
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
