"""Messages as NexusD's clients get them: a `MessageEvent` each, framed and joined, ready to be sent.

What every subscriber gets of every message is written by hand: the class of the message would take several
times as long. Fields need not stand in the order of their numbers, so those that all messages of a run share
stand together. All other events are made of their classes.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct as Layout
from typing import Final

from penstock.model import Properties
from penstock.runs import Run
from penstock.wire.grpc import encode_message
from penstock.wire.json_values import value_of
from penstock.wire.sidecar.fields import bytes_field, number_field, payloads_of, text_field, varint, varints
from penstock.wire.sidecar.messages.nexusd import (
    BackpressureWarning,
    Heartbeat,
    MessageEvent,
    ReplayComplete,
    SubscriptionInfo,
)

TOPICS_REMEMBERED = 4_096
_PREFIX = Layout(">BI")
_ID, _TOPIC, _PAYLOAD, _CONTENT_TYPE = b"\x0a", b"\x12", b"\x1a", b"\x22"
_TIME, _SOURCE, _CORRELATION_ID = b"\x28", b"\x32", b"\x3a"


class Arm:
    """Why a client gets a message: fields of `MessageEvent`. An `Enum` would be slow to hash."""

    MESSAGE: Final = 2
    RETAINED: Final = 3
    REPLAY: Final = 5


def encode_messages(run: Run, arm: int, ids: Sequence[bytes], source: str) -> bytes:
    """The events of a run, framed and joined.

    Args:
        arm: one of `Arm`.
        ids: one for each message, all of the same length.
        source: the node that accepted them.
    """
    size = run.stride - run.head
    shared = _names(run.topic, source) + _time(run.published_at // 1_000)
    if run.properties is not None:
        shared += _extras(run.properties)
    if size:
        shared += _payload_head(size)
    same = len(shared) + size
    if run.count == 1:
        sequence = varint(run.sequence)
        start = _start(arm, len(ids[0]), same + len(sequence))
        return b"%b%b%b%b\x40%b" % (start, ids[0], shared, run.slab[run.head : run.stride], sequence)
    sequences = varints(run.sequence, run.count)
    width = len(sequences[0])
    if len(sequences[-1]) != width:  # and with it all lengths
        count = (1 << 7 * width) - run.sequence
        before, behind = run.part(0, count), run.part(count, run.count - count)
        return encode_messages(before, arm, ids[:count], source) + encode_messages(
            behind, arm, ids[count:], source
        )
    start = _start(arm, len(ids[0]), same + width)
    return b"".join(
        [
            b"%b%b%b%b\x40%b" % (start, message_id, shared, payload, sequence)
            for message_id, payload, sequence in zip(ids, payloads_of(run), sequences, strict=True)
        ]
    )


def encode_event(
    *,
    subscription_info: SubscriptionInfo | None = None,
    heartbeat: Heartbeat | None = None,
    replay_complete: ReplayComplete | None = None,
    backpressure_warning: BackpressureWarning | None = None,
) -> bytes:
    """An event that is not a message, framed."""
    event = MessageEvent(
        subscription_info=subscription_info,
        heartbeat=heartbeat,
        replay_complete=replay_complete,
        backpressure_warning=backpressure_warning,
    )
    return encode_message(event.SerializeToString())


@lru_cache(maxsize=1_024)
def _start(arm: int, id_bytes: int, other_bytes: int) -> bytes:
    """Everything up to the id: the frame, the event and the message, each with its length.

    Args:
        other_bytes: of the message, beside its id and the tag of its sequence.
    """
    id_head = _ID + varint(id_bytes)
    size = len(id_head) + id_bytes + other_bytes + 1
    event_head = bytes((arm << 3 | 2,)) + varint(size)
    return _PREFIX.pack(0, len(event_head) + size) + event_head + id_head


@lru_cache(maxsize=TOPICS_REMEMBERED)
def _names(topic: str, source: str) -> bytes:
    """Fields common to all messages of a topic."""
    return bytes_field(_TOPIC, topic.encode()) + bytes_field(_SOURCE, source.encode())


@lru_cache(maxsize=1_024)
def _payload_head(size: int) -> bytes:
    return _PAYLOAD + varint(size)


@lru_cache(maxsize=64)
def _time(milliseconds: int) -> bytes:
    """Publication time; messages of one turn share it."""
    return number_field(_TIME, milliseconds)


def _extras(properties: Properties) -> bytes:
    """Optional fields of a message."""
    kind, correlation_id = properties.content_type, properties.correlation_id
    fields = text_field(_CONTENT_TYPE, kind) if kind else b""
    return fields + bytes_field(_CORRELATION_ID, _text(correlation_id)) if correlation_id else fields


def _text(data: bytes) -> bytes:
    """Bytes as a field of text takes them: UTF-8 as it is, anything else as JSON has bytes."""
    try:
        data.isascii() or data.decode()
    except UnicodeDecodeError:
        return value_of(data)
    return data
