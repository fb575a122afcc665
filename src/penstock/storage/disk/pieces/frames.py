"""Stored values: frames of runs, and the summaries of sealed batches, encoded with msgpack.

A frame has the runs of one commit as the broker had them, so that writing is cheap. It covers every offset
from `first` to `last`, stored or not: frames are contiguous, so that a missing one shows. Times are wall
times, because monotonic ones have no meaning for the next process.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct, msgpack

from penstock.common.stored_runs import fields_of
from penstock.model import Door, Properties
from penstock.runs import NEVER, Run, bare_shape

Range = tuple[int, int]
"""First and last offset."""


class Frame(Struct, frozen=True):
    """Messages of one commit, or of a part of it."""

    epoch: int
    first: int
    last: int
    committed_at: int
    runs: Sequence[Run]
    holes: tuple[Range, ...] = ()
    """Offsets of messages that could not be stored."""


class _StoredShape(Struct, frozen=True, gc=False, array_like=True):
    """Shape as the log stores it. A change of the fields is a change of the format, here and below."""

    layout: str
    door: Door
    qos: int
    retain: bool
    is_plain: bool


class StoredRun(Struct, frozen=True, gc=False, array_like=True):
    """Run as the log stores it; `fields_of` gives its fields."""

    topic: str
    slab: bytes
    head: int
    stride: int
    count: int
    shape: _StoredShape
    properties: Properties | None = None
    ttl: float = NEVER
    packet_id: int = 0
    client_id: str = ""
    sequence: int = 0
    offset: int = 0
    published_at: int = 0
    expires_at: float = NEVER


class _StoredFrame(Struct, frozen=True, array_like=True):
    """Frame as the log stores it."""

    epoch: int
    first: int
    last: int
    committed_at: int
    runs: list[StoredRun]
    holes: tuple[Range, ...] = ()


class Outline(Struct, frozen=True, gc=False):
    """A frame without its messages."""

    epoch: int
    first: int
    last: int
    count: int
    began_at: int
    """Publish time of the first message, or of the commit if there is none."""
    holes: tuple[Range, ...]
    sequences: dict[str, int]
    """The last one of each topic."""


class Summary(Struct, frozen=True, array_like=True):
    """Index entry of a sealed batch; all of them are read at start."""

    first: int
    last: int
    count: int
    bytes: int
    """Size of the sealed batch."""
    began_at: int
    ended_at: int
    """Publish times of the first and last message, in microseconds."""
    first_epoch: int
    last_epoch: int
    holes: tuple[Range, ...] = ()
    reserved: int | None = None
    """Number of messages that are not `is_public`; None if unknown, as in older batches."""


class Extent(Struct, frozen=True, array_like=True):
    """Messages of one topic in a sealed batch."""

    first: int
    last: int
    count: int
    qos: int
    """First and last sequence, number of messages, and their highest QoS."""


_encoder = msgpack.Encoder()
_frames = msgpack.Decoder(_StoredFrame)
_summaries = msgpack.Decoder(Summary)
_extents = msgpack.Decoder(dict[str, Extent])


def join_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Merge adjacent ranges; the input is sorted."""
    joined: list[Range] = []
    for first, last in ranges:
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def encode_frame(frame: Frame) -> bytes:
    """Encode a frame."""
    runs = [fields_of(run) for run in frame.runs]
    return _encoder.encode((frame.epoch, frame.first, frame.last, frame.committed_at, runs, frame.holes))


def decode_frame(data: bytes) -> Frame:
    """Decode a frame; its runs have bare payloads, independent of the original protocol.

    Do not use `expires_at` of its runs: use `stored_runs.expiry_of`.
    """
    stored = _frames.decode(data)
    runs = [from_stored(run) for run in stored.runs]
    return Frame(stored.epoch, stored.first, stored.last, stored.committed_at, runs, stored.holes)


def decode_outline(data: bytes) -> Outline:
    """Decode a frame as far as the survey at start needs it; no run is made."""
    frame = _frames.decode(data)
    runs = frame.runs
    return Outline(
        frame.epoch,
        frame.first,
        frame.last,
        sum([run.count for run in runs]),
        runs[0].published_at if runs else frame.committed_at,
        frame.holes,
        {run.topic: run.sequence + run.count - 1 for run in runs},
    )


def decode_stored(data: bytes) -> list[StoredRun]:
    """Decode the runs of a frame as they are stored; `from_stored` makes runs of them."""
    return _frames.decode(data).runs


def from_stored(run: StoredRun) -> Run:
    """Run with a bare payload of a stored one."""
    shape = run.shape
    return Run(
        run.topic,
        run.slab,
        run.head,
        run.stride,
        run.count,
        bare_shape(shape.door, shape.qos, shape.retain),
        run.properties,
        run.ttl,
        run.packet_id,
        run.client_id,
        run.sequence,
        run.offset,
        run.published_at,
        run.expires_at,
    )


def encode_summary(summary: Summary) -> bytes:
    return _encoder.encode(summary)


def decode_summary(data: bytes) -> Summary:
    return _summaries.decode(data)


def encode_extents(extents: dict[str, Extent]) -> bytes:
    return _encoder.encode(extents)


def decode_extents(data: bytes) -> dict[str, Extent]:
    return _extents.decode(data)
