"""Fast decoding of `PublishBatch`.

Consecutive payloads of one length are frames of one length in the bytes: a tag, a length and the payload.
They are not split: as received they are a run's slab, and a `Run` of a delivery has the same bytes.
Everything else is decoded by protobuf.
"""

from collections.abc import Generator

from google.protobuf.message import DecodeError
from msgspec import Struct

from penstock.errors import WireError
from penstock.wire.sidecar.fields import varint
from penstock.wire.sidecar.messages.penstock import Messages, PublishBatch

LAYOUT = "penstock.v1"
"""A slab of frames that stand in a message as its field 2."""
FRAMED_BELOW_BYTES = 4096
"""Larger payloads are taken out one by one: to leave them in place would save little."""
WORTH_BYTES = 512
"""In fewer bytes there are too few frames to look for them."""
ENTRIES_A_STEP = 200
"""Entries that are decoded in one step."""
_BATCH_ID, _TOPIC, _ENTRY, _PAYLOAD = 0x08, 0x0A, 0x12, 0x12
_VARINT_LIMIT_BYTES = 10
_LENGTH_LIMIT_BYTES = 5
"""A length that is written with more is refused by protobuf."""


class BadBatch(WireError):
    """These bytes are not a batch."""


class LongBatch(WireError):
    """This batch has more messages than one may have."""


class Entry(Struct):
    """One entry of a batch: `count` payloads as frames, and behind them those that `rest` has."""

    rest: Messages
    slab: bytes = b""
    head: int = 0
    stride: int = 0
    count: int = 0

    @property
    def messages(self) -> int:
        """Number of messages."""
        return self.count + len(self.rest.payloads)


def read_batch(data: bytes, most: int) -> Generator[None, None, tuple[int, list[Entry]]]:
    """The number of a batch and its entries, in steps.

    Args:
        most: messages that it may have; an entry without any counts as one.

    Raises:
        BadBatch: it is none.
        LongBatch: it has more.
    """
    try:
        batch_id, entries = (yield from _walk(data, most)) or _parse(data, most)
    except (DecodeError, IndexError):
        raise BadBatch("not a valid PublishBatch") from None
    if len(entries) > most or sum(max(entry.messages, 1) for entry in entries) > most:
        raise LongBatch(f"a batch has {most} messages at most")
    return batch_id, entries


def _walk(data: bytes, most: int) -> Generator[None, None, tuple[int, list[Entry]] | None]:
    """Decode entry by entry; None if a field needs protobuf."""
    batch_id, position, end = 0, 0, len(data)
    entries: list[Entry] = []
    while position < end and len(entries) <= most:
        tag = data[position]
        if tag == _ENTRY:
            size, start = _take_varint(data, position + 1, _LENGTH_LIMIT_BYTES)
            position = start + size
            if position > end:
                return None
            entries.append(_read_entry(data, start, position))
            if len(entries) % ENTRIES_A_STEP == 0:
                yield
        elif tag == _BATCH_ID:
            batch_id, position = _take_varint(data, position + 1)
        else:
            return None
    return batch_id & 0xFFFFFFFFFFFFFFFF, entries


def _parse(data: bytes, most: int) -> tuple[int, list[Entry]]:
    batch = PublishBatch.FromString(data)
    entries = batch.messages[: most + 1]  # of empty ones there may be millions, and each would be an object
    return batch.batch_id, [Entry(messages) for messages in entries]


def _read_entry(data: bytes, start: int, end: int) -> Entry:
    if end - start >= WORTH_BYTES:
        first = start
        if data[start] == _TOPIC:
            size, first = _take_varint(data, start + 1, _LENGTH_LIMIT_BYTES)
            first += size
        if first < end and data[first] == _PAYLOAD:
            size, body = _take_varint(data, first + 1, _LENGTH_LIMIT_BYTES)
            # A length may be written with more bytes than it needs, and not every reader takes that.
            is_short = body - first == len(varint(size)) + 1
            if is_short and size < FRAMED_BELOW_BYTES:
                return _read_framed(data, start, first, body, body + size - first, end)
    return Entry(Messages.FromString(data[start:end]))


def _read_framed(data: bytes, start: int, first: int, body: int, stride: int, end: int) -> Entry:
    """An entry whose payloads begin at `first` with a frame of `stride` bytes."""
    count = _count_frames(data, first, data[first:body], stride, end)
    stop = first + count * stride
    rest = Messages.FromString(data[start:first] + data[stop:end])
    return Entry(rest, data[first:stop], body - first, stride, count)


def _count_frames(data: bytes, first: int, prefix: bytes, stride: int, end: int) -> int:
    """Count consecutive frames of one length: all of them begin with the same bytes.

    It compares the first bytes of all frames at once; a loop over frames would dominate the cost.
    """
    count = (end - first) // stride
    for place, byte in enumerate(prefix, first):
        column = data[place : first + count * stride : stride]
        count -= len(column.lstrip(bytes((byte,))))
    return count


def _take_varint(data: bytes, position: int, limit_bytes: int = _VARINT_LIMIT_BYTES) -> tuple[int, int]:
    """A number, and where it ends; an IndexError if the data ends first."""
    value = data[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for place in range(1, limit_bytes):
        byte = data[position + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, position + place + 1
    raise BadBatch("not a valid PublishBatch")
