"""Stored values: frames of rows, and the summaries of sealed batches, encoded with msgpack.

A frame has the runs of one commit as the broker had them, so that writing is cheap. It covers every offset
from `first` to `last`, stored or not: frames are contiguous, so that a missing one shows. Times are wall
times, because monotonic ones have no meaning for the next process.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct, msgpack

from penstock.model import NEVER, Run, bare_shape

Range = tuple[int, int]
"""First and last offset."""


class Frame(Struct, frozen=True, array_like=True):
    """Messages of one commit, or of a part of it."""

    epoch: int
    first: int
    last: int
    committed_at: int
    runs: Sequence[Run]
    holes: tuple[Range, ...] = ()
    """Offsets of messages that could not be stored."""


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
_frames = msgpack.Decoder(Frame)
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
    return _encoder.encode(frame)


def decode_frame(data: bytes) -> Frame:
    """Decode a frame; its runs have bare payloads, independent of the original protocol.

    Do not use `expires_at` of its runs: use `expiry_of`.
    """
    frame = _frames.decode(data)
    for run in frame.runs:
        shape = run.shape
        run.shape = bare_shape(shape.door, shape.qos, shape.retain)
    return frame


def encode_summary(summary: Summary) -> bytes:
    return _encoder.encode(summary)


def decode_summary(data: bytes) -> Summary:
    return _summaries.decode(data)


def encode_extents(extents: dict[str, Extent]) -> bytes:
    return _encoder.encode(extents)


def decode_extents(data: bytes) -> dict[str, Extent]:
    return _extents.decode(data)


def expiry_of(run: Run) -> int | None:
    """Expiry of a stored run in microseconds of wall time; None if it never expires."""
    return None if run.ttl == NEVER else run.published_at + round(run.ttl * 1_000_000)
