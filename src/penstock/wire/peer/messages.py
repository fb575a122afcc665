"""Messages of the peer protocol: publishes for a shard, what its followers get, and questions.

A message is an array of msgpack that begins with its kind. Runs have the fields that the log stores,
and share a table of shapes. Fields may be added at the end of a message: readers ignore those that they do
not know.
"""

from typing import Annotated

from msgspec import Meta, MsgspecError, Struct, msgpack

from penstock.common.cursor import MAX_SHARDS
from penstock.common.stored_runs import rows_of, runs_of
from penstock.errors import WireError
from penstock.model import Properties
from penstock.runs import Run

PROTOCOL_VERSION = 1
MAX_RUNS = 10_000
"""Of one batch or portion."""
MAX_ITEMS = 10_000
"""Filters or ranges of one message."""

_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Offset = _Number
_Epoch = Annotated[int, Meta(ge=0, le=2**32 - 1)]
_Shard = Annotated[int, Meta(ge=0, lt=MAX_SHARDS)]
_Name = Annotated[str, Meta(min_length=1, max_length=65_535)]
_Text = Annotated[str, Meta(max_length=65_535)]
_Code = Annotated[str, Meta(max_length=64)]
_Seconds = Annotated[float, Meta(ge=0.0, le=1e15)]


class MalformedMessage(WireError):
    """Bytes that are not a message of this protocol; the connection cannot continue."""


class Hello(Struct, frozen=True, array_like=True, tag=1):
    """First message of a connection, in both directions."""

    version: _Number
    cluster_id: _Code
    process: _Code
    """Name of the process that sends it."""
    incarnation: _Number
    """Grows with every start of that process."""
    connection: _Number
    """Number of the connection as the dialling side counts them; of two, the higher one is valid."""


class Heartbeat(Struct, frozen=True, array_like=True, tag=2):
    """Sign of life while there is nothing else to send."""


class Batch(Struct, frozen=True):
    """Publishes for a shard (`RoutePublish`). Each run has a number; that of the first one is given.

    Publishes are counted from 1 on each connection. Exactly-once forwards are stored by their origin, and
    counted for each origin and shard forever, so that the receiver skips those that it has.
    """

    shard: int
    origin: int
    """Shard that sends them, home of their publishers."""
    number: int
    is_forward: bool
    runs: list[Run]


class Settled(Struct, frozen=True, array_like=True, tag=4):
    """Runs with these numbers are committed by the shard, or refused; forwards are confirmed up to `last`."""

    shard: _Shard
    origin: _Shard
    is_forward: bool
    first: _Number
    last: _Number
    code: _Code = ""
    """Code of the error with which they were refused; empty if they were taken."""


class FollowedFilter(Struct, frozen=True, array_like=True):
    """Filter of sessions elsewhere. It is stored if one of them outlives its connection at QoS 1 or 2."""

    filter: _Name
    is_stored: bool


class Follow(Struct, frozen=True, array_like=True, tag=5):
    """Request of a shard to get what another one publishes after a position, by the union of its filters.

    Later requests of the same link add and remove filters; their position is the one that was seen.
    """

    shard: _Shard
    origin: _Shard
    request: _Number
    epoch: _Epoch
    offset: _Offset
    added: Annotated[tuple[FollowedFilter, ...], Meta(max_length=MAX_ITEMS)] = ()
    removed: Annotated[tuple[_Name, ...], Meta(max_length=MAX_ITEMS)] = ()


class Added(Struct, frozen=True, array_like=True, tag=6):
    """Response to `Follow`: the filters count after this position, or the code of a refusal."""

    shard: _Shard
    origin: _Shard
    request: _Number
    epoch: _Epoch
    offset: _Offset
    code: _Code = ""


class Portion(Struct, frozen=True):
    """Messages for a follower, and the position after them; it may be beyond the last message."""

    shard: int
    origin: int
    epoch: int
    offset: int
    runs: list[Run]


class Seen(Struct, frozen=True, array_like=True, tag=8):
    """Position up to which a follower has stored what it needs; retention may continue up to there."""

    shard: _Shard
    origin: _Shard
    epoch: _Epoch
    offset: _Offset


class Fetch(Struct, frozen=True, array_like=True, tag=9):
    """Request for messages by their offsets, for offline queues."""

    shard: _Shard
    request: _Number
    ranges: Annotated[tuple[tuple[_Offset, _Offset], ...], Meta(max_length=MAX_ITEMS)]
    """First and last offset of each."""


class Fetched(Struct, frozen=True):
    """Part of the response to `Fetch`; what none of the parts has is not there any more."""

    shard: int
    request: int
    is_last: bool
    runs: list[Run]


class Ask(Struct, frozen=True, array_like=True, tag=11):
    """Question to a shard: streams, why, lists, history."""

    shard: _Shard
    request: _Number
    question: _Code
    body: bytes
    timeout_ms: Annotated[int, Meta(ge=0, le=3_600_000)]


class Response(Struct, frozen=True, array_like=True, tag=12):
    """Response to `Ask`: a body, or the code of an error with its text as body."""

    request: _Number
    code: _Code
    body: bytes


_Shapes = Annotated[list[tuple[_Code, Annotated[int, Meta(ge=0, le=2)], bool]], Meta(max_length=64)]
_Runs = Annotated[
    list[
        tuple[  # the first numbers are checked together, when runs are made
            _Name,
            bytes,
            int,
            int,
            int,
            int,
            Properties | None,
            _Seconds,
            _Number,
            _Text,
            _Number,
            _Number,
            _Number,
        ]
    ],
    Meta(max_length=MAX_RUNS),
]


class _BatchRow(Struct, frozen=True, array_like=True, tag=3):
    """Batch as it is encoded."""

    shard: _Shard
    origin: _Shard
    number: _Number
    is_forward: bool
    shapes: _Shapes
    runs: _Runs


class _PortionRow(Struct, frozen=True, array_like=True, tag=7):
    """Portion as it is encoded."""

    shard: _Shard
    origin: _Shard
    epoch: _Epoch
    offset: _Offset
    shapes: _Shapes
    runs: _Runs


class _FetchedRow(Struct, frozen=True, array_like=True, tag=10):
    """Fetched as it is encoded."""

    shard: _Shard
    request: _Number
    is_last: bool
    shapes: _Shapes
    runs: _Runs


_Plain = Hello | Heartbeat | Settled | Follow | Added | Seen | Fetch | Ask | Response
Message = _Plain | Batch | Portion | Fetched

_encoder = msgpack.Encoder()
_decoder: msgpack.Decoder[_Plain | _BatchRow | _PortionRow | _FetchedRow] = msgpack.Decoder(
    _Plain | _BatchRow | _PortionRow | _FetchedRow
)


def encode_message(message: Message) -> bytes:
    """Encode a message. Its fields are expected within the limits that `decode_message` checks."""
    if isinstance(message, Batch):
        rows = rows_of(message.runs)
        return _encoder.encode((3, message.shard, message.origin, message.number, message.is_forward, *rows))
    if isinstance(message, Portion):
        rows = rows_of(message.runs)
        return _encoder.encode((7, message.shard, message.origin, message.epoch, message.offset, *rows))
    if isinstance(message, Fetched):
        rows = rows_of(message.runs)
        return _encoder.encode((10, message.shard, message.request, message.is_last, *rows))
    return _encoder.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    """Decode a message; its runs have bare payloads, and no expiry before they are stamped.

    Raises:
        MalformedMessage: it is not a message, or beyond a limit.
    """
    try:
        row = _decoder.decode(data)
        if isinstance(row, _BatchRow):
            return Batch(row.shard, row.origin, row.number, row.is_forward, runs_of(row.shapes, row.runs))
        if isinstance(row, _PortionRow):
            return Portion(row.shard, row.origin, row.epoch, row.offset, runs_of(row.shapes, row.runs))
        if isinstance(row, _FetchedRow):
            return Fetched(row.shard, row.request, row.is_last, runs_of(row.shapes, row.runs))
    except (MsgspecError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"not a message of a peer: {error}") from None
    return row
