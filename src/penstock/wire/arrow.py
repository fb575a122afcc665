"""Arrow IPC streams, cut into messages by their framing.

A stream is a schema, then dictionaries and record batches, then an end. Each message says how long it is, so
that streams of one schema can be made into one without anyone looking at the data: the schema once, then what
each has between its schema and its end. A dictionary that comes again replaces the one before, as the format
allows. Whether the data is what the messages promise is not looked at.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct as Layout

from msgspec import Struct

from penstock.errors import WireError
from penstock.wire.flatbuffers import LENGTH, find_field, follow, layout_error

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
END = b"\xff\xff\xff\xff\0\0\0\0"
"""What a stream ends with."""

_CONTINUATION = 0xFFFFFFFF
_PREFIX = Layout("<Ii")
_KIND_SLOT = 6
_BODY_SLOT = 10
"""Where a message's table says at which place its kind and the length of its body are."""


class Kind(IntEnum):
    """What a message is."""

    SCHEMA = 1
    DICTIONARY = 2
    BATCH = 3


class Message(Struct, frozen=True):
    """Where in a stream a message is."""

    kind: Kind
    start: int
    stop: int


class Cut(Struct, frozen=True):
    """A stream without its end: the schema, and everything behind it."""

    schema: memoryview
    body: memoryview


def messages(stream: bytes) -> Iterator[Message]:
    """The messages of a complete stream.

    Raises:
        WireError: these bytes are no complete stream, or there is more behind its end.
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
    """Take a complete stream apart, without a copy.

    Raises:
        WireError: these bytes are no complete stream of one schema.
    """
    found = list(messages(stream))
    if not found or [message.kind for message in found].count(Kind.SCHEMA) != 1:
        raise WireError("an Arrow stream has one schema")
    if found[0].kind is not Kind.SCHEMA:
        raise WireError("an Arrow stream begins with its schema")
    view = memoryview(stream)
    return Cut(view[: found[0].stop], view[found[0].stop : found[-1].stop])


def _read_head(stream: bytes, start: int, stop: int) -> tuple[Kind, int]:
    """What a message is, and the length of its body: two fields of the FlatBuffers table in its head."""
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
