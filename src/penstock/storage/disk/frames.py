"""What is stored, as bytes: frames of rows, and what the index says of sealed batches.

A frame holds the runs of one commit as the broker had them, so that writing costs next to nothing. It covers
every offset from `first` to `last`, kept or not: where one frame ends the next begins, and so a missing one
shows. Times are wall times here, because monotonic ones mean nothing to the next process.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct, msgpack

from penstock.model import NEVER, Run, bare_shape

Range = tuple[int, int]
"""The first and the last of some offsets."""


class Frame(Struct, frozen=True, array_like=True):
    """The messages of one commit, or a part of it."""

    epoch: int
    first: int
    last: int
    committed_at: int
    runs: Sequence[Run]
    holes: tuple[Range, ...] = ()
    """Offsets of messages that should have been kept and could not be."""


class Summary(Struct, frozen=True, array_like=True):
    """What is in a sealed batch, short enough to be read for all of them at start."""

    first: int
    last: int
    count: int
    bytes: int
    """Of the sealed batch."""
    began_at: int
    ended_at: int
    """When its first and its last message were published, in microseconds."""
    first_epoch: int
    last_epoch: int
    holes: tuple[Range, ...] = ()
    reserved: int | None = None
    """How many of its messages are not `is_public`; None if that is not known, as of older batches."""


class Extent(Struct, frozen=True, array_like=True):
    """What a sealed batch has of one topic."""

    first: int
    last: int
    count: int
    qos: int
    """The first and last sequence, how many there are, and the highest level of service among them."""


_encoder = msgpack.Encoder()
_frames = msgpack.Decoder(Frame)
_summaries = msgpack.Decoder(Summary)
_extents = msgpack.Decoder(dict[str, Extent])


def join_ranges(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets in as few ranges as possible; they come in order."""
    joined: list[Range] = []
    for first, last in ranges:
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def encode_frame(frame: Frame) -> bytes:
    """The bytes of a frame."""
    return _encoder.encode(frame)


def decode_frame(data: bytes) -> Frame:
    """A frame again; its runs carry bare payloads, whatever wire they came from.

    `expires_at` of its runs is not to be relied on: what counts is `expiry_of`.
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
    """When a stored run expires, in microseconds of wall time; None if it does not."""
    return None if run.ttl == NEVER else run.published_at + round(run.ttl * 1_000_000)
