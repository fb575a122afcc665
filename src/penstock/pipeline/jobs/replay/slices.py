"""How a replay is cut: slices of consecutive offsets, each published by one commit when its time has come.

Spark counts messages in small groups: those of the same block of offsets and, if time matters, of the same
moment. Groups become slices here. Slices are in the order of the log, also where its clock was set back.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

SLICE_ROWS, SLICE_BYTES = 20_000, 8 * 1024 * 1024
LOAD_ROWS, LOAD_BYTES = 200_000, 48 * 1024 * 1024
"""What is staged at once; the next load is staged while the slices of one are published."""
LOAD_S = 300.0
"""How long a stage may wait for its time: far less than it takes to lapse."""


class Slice(Struct, frozen=True, array_like=True):
    """Messages that are published together: those of some offsets, both ends included."""

    first: int
    last: int
    rows: int
    bytes: int
    time: int
    """When the oldest of them was published, in microseconds since 1970."""
    moment: int = 0
    """What is of different moments is not published together."""


def cut(groups: Iterable[Slice], rows: int = SLICE_ROWS, size: int = SLICE_BYTES) -> list[Slice]:
    """Join groups to slices, as long as they are of one moment and there is room."""
    slices: list[Slice] = []
    for group in sorted(groups, key=lambda group: group.first):
        last = slices[-1] if slices else None
        if last is not None and (group.first <= last.last or _may_join(last, group, rows, size)):
            slices[-1] = _join(last, group)
        else:
            slices.append(group)
    return slices


def _may_join(one: Slice, next: Slice, rows: int, size: int) -> bool:
    is_same = one.moment == next.moment
    return is_same and one.rows + next.rows <= rows and one.bytes + next.bytes <= size


def _join(one: Slice, next: Slice) -> Slice:
    return Slice(
        one.first,
        max(one.last, next.last),
        one.rows + next.rows,
        one.bytes + next.bytes,
        min(one.time, next.time),
        max(one.moment, next.moment),
    )


class Load(NamedTuple):
    """Which slices are staged together: from one number up to and without another."""

    begin: int
    end: int


def loads(slices: Sequence[Slice], begin: int, speed: float | None) -> Iterator[Load]:
    """All slices from one on, in loads."""
    while begin < len(slices):
        end = _load_end(slices, begin, speed)
        yield Load(begin, end)
        begin = end


def _load_end(slices: Sequence[Slice], begin: int, speed: float | None) -> int:
    first, rows, size = slices[begin], 0, 0
    for number in range(begin, len(slices)):
        part = slices[number]
        rows, size = rows + part.rows, size + part.bytes
        wait_s = 0.0 if speed is None else (part.time - first.time) / 1e6 / speed
        if number > begin and (rows > LOAD_ROWS or size > LOAD_BYTES or wait_s > LOAD_S):
            return number
    return len(slices)
