"""Piece of the log: one stored value, its contents as runs, and topic selection.

A piece is a frame of rows or a sealed batch. `Rows` are the contents of a frame; those of a sealed batch are
in `arrow_batches.py`, which is slow to import.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Protocol

from msgspec import MsgspecError, Struct

from penstock.core.ports.log import Listing, Wanted
from penstock.core.replay.sources import weight_of
from penstock.model import is_public
from penstock.runs import NEVER, Run
from penstock.storage.disk.pieces.frames import (
    Extent,
    Frame,
    Outline,
    Range,
    StoredRun,
    Summary,
    decode_frame,
    decode_stored,
    from_stored,
)


class Piece(Struct, frozen=True, gc=False):
    """Index entry of one stored value: a frame of rows, or a sealed batch."""

    first: int
    last: int
    count: int
    """Number of messages; fewer than offsets where some topics are not stored."""
    bytes: int
    began_at: int
    """Publish time of the first message, in microseconds."""
    is_sealed: bool
    holes: tuple[Range, ...] = ()
    reserved: int | None = None
    """Number of messages that are not `is_public`; None if unknown."""

    @classmethod
    def of_frame(cls, frame: Frame, size: int) -> "Piece":
        """Piece of a frame with this stored size."""
        count = sum([run.count for run in frame.runs])
        began_at = frame.runs[0].published_at if frame.runs else frame.committed_at
        return cls(frame.first, frame.last, count, size, began_at, is_sealed=False, holes=frame.holes)

    @classmethod
    def of_outline(cls, outline: Outline, size: int) -> "Piece":
        """Piece of a frame of which only the outline was read."""
        return cls(
            outline.first,
            outline.last,
            outline.count,
            size,
            outline.began_at,
            is_sealed=False,
            holes=outline.holes,
        )

    @classmethod
    def of_summary(cls, summary: Summary) -> "Piece":
        """Piece of a sealed batch."""
        return cls(
            summary.first,
            summary.last,
            summary.count,
            summary.bytes,
            summary.began_at,
            is_sealed=True,
            holes=summary.holes,
            reserved=summary.reserved,
        )


ROW_FACTOR = 3
"""Approximate memory size of rows relative to their stored size."""


class NotReadable(Exception):
    """A stored value cannot be decoded."""


class WantedTopics(dict[str, bool]):
    """Cached filter of one read: calls `wanted` once for each topic."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__()
        self._wanted = wanted

    def __missing__(self, topic: str) -> bool:
        self[topic] = is_wanted = self._wanted(topic)
        return is_wanted


class Taken(Struct, frozen=True):
    """Runs of a piece; `reached` is the last offset looked at, if there are more."""

    runs: list[Run]
    reached: int | None = None


class Contents(Protocol):
    """Loaded contents of a piece."""

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        ...

    def take(self, after: int, until: int, limit_bytes: int, wanted_topics: WantedTopics | None) -> Taken:
        """Wanted runs between two offsets, about `limit_bytes` of them."""
        ...

    def fetch(self, offsets: Sequence[int]) -> dict[int, Run]:
        """Single messages by offset; missing ones are omitted."""
        ...

    def listing(self, after: int, until: int, wanted_topics: WantedTopics) -> Listing:
        """Wanted messages at QoS 1 or 2 between two offsets, by column."""
        ...


class Rows:
    """Contents of a frame, decoded on first use, which may raise `NotReadable`."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def stored_bytes(self) -> int:
        """Size on disk."""
        return len(self._data)

    @property
    def nbytes(self) -> int:
        return len(self._data) * (1 + ROW_FACTOR)

    @cached_property
    def frame(self) -> Frame:
        try:
            return decode_frame(self._data)
        except MsgspecError as error:
            raise NotReadable from error

    def take(self, after: int, until: int, limit_bytes: int, wanted_topics: WantedTopics | None) -> Taken:
        taken: list[Run] = []
        for run in self._after(after):
            if run.offset > until:
                break
            if wanted_topics is None or wanted_topics[run.topic]:
                if limit_bytes <= 0:
                    return Taken(taken, run.offset - 1)
                taken.append(run)
                limit_bytes -= weight_of(run)
        return Taken(taken)

    def fetch(self, offsets: Sequence[int]) -> dict[int, Run]:
        found: dict[int, Run] = {}
        runs = iter(self.frame.runs)
        run = next(runs, None)
        for offset in sorted(offsets):
            while run is not None and run.offset + run.count <= offset:
                run = next(runs, None)
            if run is not None and run.offset <= offset:
                found[offset] = run.part(offset - run.offset, 1)
        return found

    def listing(self, after: int, until: int, wanted_topics: WantedTopics) -> Listing:
        try:
            stored = decode_stored(self._data)
        except MsgspecError as error:
            raise NotReadable from error
        return _list(stored, after, until, wanted_topics)

    def _after(self, offset: int) -> Iterable[Run]:
        return (run for run in self.frame.runs if run.last_offset > offset)


def _list(stored: Iterable[StoredRun], after: int, until: int, wanted_topics: WantedTopics) -> Listing:
    """Wanted messages at QoS 1 or 2 between two offsets; runs are made only if they are asked for."""
    names: dict[str, int] = {}
    topics: list[int] = []
    offsets: list[int] = []
    sizes: list[int] = []
    may_expire = False
    chosen: list[StoredRun] = []
    for run in stored:
        topic, offset, count = run.topic, run.offset, run.count
        if not run.shape.qos or offset > until or offset + count <= after + 1 or not wanted_topics[topic]:
            continue
        chosen.append(run)
        place = names.setdefault(topic, len(names))
        if count == 1:
            topics.append(place)
            offsets.append(offset)
            sizes.append(run.stride)
        else:
            topics += [place] * count
            offsets += range(offset, offset + count)
            sizes += [run.stride] * count
        may_expire = may_expire or run.ttl != NEVER
    return Listing(list(names), topics, offsets, sizes, may_expire, lambda: list(map(from_stored, chosen)))


def extents_of(runs: Iterable[Run]) -> dict[str, Extent]:
    """Extent of each topic in some runs."""
    found: dict[str, Extent] = {}
    for run in runs:
        last = run.last_sequence
        known = found.get(run.topic) or Extent(run.sequence, last, 0, 0)
        found[run.topic] = Extent(
            min(known.first, run.sequence),
            max(known.last, last),
            known.count + run.count,
            max(known.qos, run.shape.qos),
        )
    return found


class Selection:
    """Topic selection of one read: decides about a sealed piece without loading it."""

    def __init__(
        self,
        extents_of: Callable[[Piece], dict[str, Extent] | None],
        wanted: Wanted | None,
        wanted_topics: WantedTopics | None,
    ) -> None:
        self._extents_of = extents_of
        self._is_public = wanted is is_public
        self._wanted_topics = wanted_topics
        self._last: tuple[Piece, int | None] | None = None

    def is_all(self, piece: Piece) -> bool:
        """All messages of the piece are wanted."""
        return self._known(piece) == piece.count

    def is_nothing(self, piece: Piece) -> bool:
        """No message of the piece is wanted."""
        return self._known(piece) == 0

    def count(self, piece: Piece) -> int:
        """Number of wanted messages; all of them where that is unknown."""
        known = self._known(piece)
        return piece.count if known is None else known

    def _known(self, piece: Piece) -> int | None:
        """Number of wanted messages; None if unknown or the piece is empty."""
        if self._wanted_topics is None or not (piece.is_sealed and piece.count):
            return None
        if self._is_public and piece.reserved is not None:
            return piece.count - piece.reserved
        if self._last is None or self._last[0] != piece:  # the same piece is asked for several times in a row
            self._last = piece, self._look_up(piece, self._wanted_topics)
        return self._last[1]

    def _look_up(self, piece: Piece, wanted_topics: WantedTopics) -> int | None:
        extents = self._extents_of(piece)
        if not extents:
            return None
        counts = [(extent.count, wanted_topics[topic]) for topic, extent in extents.items()]
        return sum(count for count, is_asked in counts if is_asked)
