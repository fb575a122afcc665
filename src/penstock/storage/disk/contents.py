"""What is in a piece of the log once it is read: messages, to be had as runs.

`Rows` are a frame as it was committed. Its twin for sealed batches is in `batches.py`, which takes a while to
import. Who reads a piece only in part will be back for the rest: `Recent` keeps what was read last.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cached_property
from threading import Lock
from typing import Protocol

from msgspec import MsgspecError, Struct

from penstock.core.ports import Wanted
from penstock.core.sources import weight_of
from penstock.model import Run
from penstock.storage.disk.frames import Extent, Frame, Range, decode_frame

ROW_FACTOR = 3
"""How much larger rows are in memory than they are stored, about."""


class NotReadable(Exception):
    """A value is not what it should be."""


class Asked(dict[str, bool]):
    """The topics of one read and whether they are wanted; each is asked for once."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__()
        self._wanted = wanted

    def __missing__(self, topic: str) -> bool:
        self[topic] = is_wanted = self._wanted(topic)
        return is_wanted


class Taken(Struct, frozen=True):
    """Runs of a piece, and the offset of the last one if there are more."""

    runs: list[Run]
    reached: int | None = None


class Contents(Protocol):
    """What was read of a piece."""

    @property
    def nbytes(self) -> int:
        """What it takes in memory, about."""
        ...

    def take(self, after: int, until: int, limit_bytes: int, asked: Asked | None) -> Taken:
        """The runs between two offsets that are asked for, about `limit_bytes` of them."""
        ...

    def fetch(self, offsets: Sequence[int]) -> dict[int, Run]:
        """Single messages; those that are not there are left out."""
        ...

    def acknowledged(self, after: int, asked: Asked) -> Iterable[Run]:
        """The runs after an offset at QoS 1 or 2 that are asked for."""
        ...


class Rows:
    """A frame. Whatever looks into it may find that it is none, and raises `NotReadable`."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def stored_bytes(self) -> int:
        """What it takes on disk."""
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

    def take(self, after: int, until: int, limit_bytes: int, asked: Asked | None) -> Taken:
        taken: list[Run] = []
        for run in self._after(after):
            if run.offset > until:
                break
            if asked is None or asked[run.topic]:
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

    def acknowledged(self, after: int, asked: Asked) -> Iterable[Run]:
        return (run for run in self._after(after) if run.shape.qos and asked[run.topic])

    def _after(self, offset: int) -> Iterable[Run]:
        return (run for run in self.frame.runs if run.offset + run.count - 1 > offset)


def extents_of(runs: Iterable[Run]) -> dict[str, Extent]:
    """What there is of each topic."""
    found: dict[str, Extent] = {}
    for run in runs:
        last = run.sequence + run.count - 1
        known = found.get(run.topic) or Extent(run.sequence, last, 0, 0)
        found[run.topic] = Extent(
            min(known.first, run.sequence),
            max(known.last, last),
            known.count + run.count,
            max(known.qos, run.shape.qos),
        )
    return found


class Recent:
    """Contents that someone is likely to ask for again; those not asked for longest leave first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size = 0
        self._contents: OrderedDict[Range, tuple[Contents, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, offsets: Range) -> Contents | None:
        """What has these offsets, if it is here."""
        with self._lock:
            if offsets not in self._contents:
                return None
            self._contents.move_to_end(offsets)
            return self._contents[offsets][0]

    def put(self, offsets: Range, contents: Contents) -> None:
        """Keep what has these offsets for a while."""
        size = contents.nbytes
        with self._lock:
            _, known = self._contents.pop(offsets, (contents, 0))
            self._contents[offsets] = contents, size
            self._size += size - known
            while self._size > self._limit_bytes:
                _, (_, freed) = self._contents.popitem(last=False)
                self._size -= freed
