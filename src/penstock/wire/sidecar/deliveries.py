"""Encoding of deliveries of the `penstock.v1` service: many messages in one `Delivery`, framed.

Consecutive messages of a topic that differ only in their payloads share everything else. A delivery stays far
below the 4 MiB that clients accept by default, unless a single message is larger.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct as Layout

from msgspec import Struct

from penstock.model import Properties
from penstock.runs import Run
from penstock.wire.sidecar.batches import LAYOUT
from penstock.wire.sidecar.fields import bytes_field, number_field, payloads_of, text_field, varint

LIMIT_BYTES = 256 * 1024
"""Of what is joined in one delivery."""
_TOPICS_REMEMBERED = 4_096
_FRAMING_BYTES = 6
"""The most that a payload's tag and length take."""
_PREFIX = Layout(">BI")
# Tags of the fields of a `SubscribeEvent`, a `Delivery`, a `Run` and a `Property`.
_DELIVERY = b"\x0a"
_RUN, _CURSOR = b"\x0a", b"\x12"
_TOPIC, _PAYLOAD, _SEQUENCE, _EPOCH, _TIME = b"\x0a", b"\x12", b"\x18", b"\x20", b"\x28"
_CONTENT_TYPE, _CORRELATION_ID, _RESPONSE_TOPIC, _MESSAGE_ID = b"\x32", b"\x3a", b"\x42", b"\x4a"
_PROPERTY, _QOS = b"\x52", b"\x58"
_RETAINED, _REPLAY = b"\x60\x01", b"\x68\x01"  # with their value
_NAME, _VALUE = b"\x0a", b"\x12"


class _Group(Struct, gc=False):
    """Runs that a client sees as one."""

    runs: list[Run]
    epoch: int
    size: int


def encode_deliveries(
    runs: Sequence[Run],
    cursor_of: Callable[[int], bytes],
    epoch_of: Callable[[int], int],
    *,
    is_replay: bool = False,
    is_retained: bool = False,
) -> bytes:
    """Encode all messages of some runs as events, framed and joined.

    Args:
        cursor_of: the text of the cursor after an offset. Retained values have no order, and none.
        epoch_of: the epoch of an offset.
        is_replay: they were published before the subscription.
        is_retained: they are retained values.
    """
    flags = (_RETAINED if is_retained else b"") + (_REPLAY if is_replay else b"")
    parts: list[bytes] = []  # joined once, at the end: there may be much to copy
    begin, size, last = 0, 0, 0
    for group in _groups(runs, epoch_of):
        encoded = _encode(group, flags)
        added = sum(map(len, encoded))
        if size and size + added > LIMIT_BYTES:
            _close(parts, begin, size, b"" if is_retained else cursor_of(last))
            begin, size = len(parts), 0
        parts += encoded
        size += added
        last = group.runs[-1].offset + group.runs[-1].count - 1
    if size:
        _close(parts, begin, size, b"" if is_retained else cursor_of(last))
    return b"".join(parts)


def _close(parts: list[bytes], begin: int, size: int, cursor: bytes) -> None:
    """Make an event of the parts of a delivery, which begin at an index and have this many bytes."""
    cursor_field = bytes_field(_CURSOR, cursor)
    delivery_head = _DELIVERY + varint(size + len(cursor_field))
    size += len(delivery_head) + len(cursor_field)
    parts.insert(begin, _PREFIX.pack(0, size) + delivery_head)
    parts.append(cursor_field)


def _groups(runs: Iterable[Run], epoch_of: Callable[[int], int]) -> Iterator[_Group]:
    group: _Group | None = None
    for run in _pieces(runs):
        epoch, size = epoch_of(run.offset), len(run.slab)
        if group is not None:
            if epoch == group.epoch and group.size + size <= LIMIT_BYTES and _follows(run, group.runs[-1]):
                group.runs.append(run)
                group.size += size
                continue
            yield group
        group = _Group([run], epoch, size)
    if group is not None:
        yield group


def _pieces(runs: Iterable[Run]) -> Iterator[Run]:
    """The same messages in runs that are not too large to be sent at once."""
    for run in runs:
        most = max(LIMIT_BYTES // (run.stride + _FRAMING_BYTES), 1)
        if run.count <= most:
            yield run
        else:
            for first in range(0, run.count, most):
                yield run.part(first, min(most, run.count - first))


def _follows(run: Run, before: Run) -> bool:
    """True if a run continues with another, and differs from it in nothing that a client could see."""
    return (
        run.sequence == before.sequence + before.count
        and run.topic == before.topic
        and run.published_at == before.published_at
        and run.shape.qos == before.shape.qos
        and run.properties == before.properties
        and (run.properties is None or run.properties.message_id is None)
    )


def _encode(group: _Group, flags: bytes) -> list[bytes]:
    """A group as a field of a delivery, in parts."""
    first = group.runs[0]
    payloads = [_payloads(run) for run in group.runs]
    fields = b"%b%b%b%b%b%b%b%b" % (
        _topic(first.topic),
        b"" if first.properties is None else _extras(first.properties),
        _numbers(group.epoch, first.shape.qos),
        _TIME,
        varint(first.published_at),
        _SEQUENCE,
        varint(first.sequence),
        flags,
    )
    size = len(fields) + sum(map(len, payloads))
    return [b"%b%b%b" % (_RUN, varint(size), fields), *payloads]


def _payloads(run: Run) -> bytes:
    if run.shape.layout == LAYOUT:
        return run.slab
    head = _payload_head(run.stride - run.head)
    if run.count == 1:
        return head + run.slab[run.head : run.stride]
    return head + head.join(payloads_of(run))


def _extras(properties: Properties) -> bytes:
    """Optional fields of a message."""
    fields = [
        text_field(_CONTENT_TYPE, properties.content_type or ""),
        bytes_field(_CORRELATION_ID, properties.correlation_id or b""),
        bytes_field(_RESPONSE_TOPIC, (properties.response_topic or "").encode()),
        bytes_field(_MESSAGE_ID, (properties.message_id or "").encode()),
    ]
    fields += [b"%b%b%b" % (_PROPERTY, varint(len(pair)), pair) for pair in map(_pair, properties.user)]
    return b"".join(fields)


def _pair(pair: tuple[str, str]) -> bytes:
    name, value = pair
    return bytes_field(_NAME, name.encode()) + bytes_field(_VALUE, value.encode())


@lru_cache(maxsize=_TOPICS_REMEMBERED)
def _topic(topic: str) -> bytes:
    return bytes_field(_TOPIC, topic.encode())


@lru_cache(maxsize=1_024)
def _payload_head(size: int) -> bytes:
    return _PAYLOAD + varint(size)


@lru_cache(maxsize=64)
def _numbers(epoch: int, qos: int) -> bytes:
    return number_field(_EPOCH, epoch) + number_field(_QOS, qos)
