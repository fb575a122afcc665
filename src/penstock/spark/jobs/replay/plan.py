"""Plan of a replay: slices of consecutive offsets, and the state file that records which are published.

Spark counts messages in small groups, by blocks of offsets and, if pace matters, by moments. Groups are
joined to slices, each published by one commit when it is due. Slices are in log order, even where the clock
was set back.

The state file has JSON lines. The first is the plan, written completely before anything is published; each
further line records one published slice. A line cut short by a crash is ignored: the slice is published again
under the same key, and the server deduplicates it.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import msgspec
from msgspec import Struct, field

from penstock.common.cursor import Position
from penstock.lake.table import make_folder, sync_folder
from penstock.spark.errors import InvalidOption

SLICE_ROWS, SLICE_BYTES = 20_000, 8 * 1024 * 1024
LOAD_ROWS, LOAD_BYTES = 200_000, 48 * 1024 * 1024
"""Limits of what is staged at once; the next load is staged while the slices of one are published."""
LOAD_S = 300.0
"""Limit of the time that a stage waits to be published: far less than its lapse."""
FORMAT = 1


class Slice(Struct, frozen=True, array_like=True):
    """Messages published together: those of a range of offsets, both ends included."""

    first: int
    last: int
    rows: int
    bytes: int
    time: int
    """Publish time of the oldest message, in microseconds since 1970."""
    moment: int = 0
    """Messages of different moments are not published together."""


def plan_slices(groups: Iterable[Slice], rows: int = SLICE_ROWS, size: int = SLICE_BYTES) -> list[Slice]:
    """Join groups to slices, as long as they belong to one moment and fit."""
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
    """Slices that are staged together: from one number up to, not including, another."""

    begin: int
    end: int


def plan_loads(slices: Sequence[Slice], begin: int, speed: float | None) -> Iterator[Load]:
    """All slices from a number on, in loads."""
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


class Plan(Struct, frozen=True, kw_only=True):
    """Complete plan of a replay."""

    format: int = FORMAT
    id: str
    """Prefix of the key of each commit."""
    identity: dict[str, str] = field(name="what")
    """Options and destination that distinguish the replay; stored as `what`."""
    log: Position
    """A position in the log of the messages, not before any of them."""
    slices: tuple[Slice, ...]

    def key(self, number: int) -> str:
        """The idempotency key of a slice."""
        return f"{self.id}:{number}"


class _Done(Struct):
    done: int


class State:
    """State file of a replay."""

    def __init__(self, file: Path, plan: Plan, done: int) -> None:
        self.file = file
        self.plan = plan
        self.done = done
        """Number of published slices, from the first on."""
        self.rows = sum(part.rows for part in plan.slices)
        self.rows_done = sum(part.rows for part in plan.slices[:done])

    @classmethod
    def begin(cls, file: Path, identity: Mapping[str, str], log: Position, slices: list[Slice]) -> "State":
        """Store a new plan, in place of an earlier one."""
        plan = Plan(id=f"replay-{uuid4().hex}", identity=dict(identity), log=log, slices=tuple(slices))
        make_folder(file.absolute().parent)
        draft = file.with_name(f".{file.name}.{plan.id}")
        try:
            with draft.open("xb") as opened:
                opened.write(msgspec.json.encode(plan) + b"\n")
                opened.flush()
                os.fsync(opened.fileno())
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(file.absolute().parent)
        return cls(file, plan, 0)

    @classmethod
    def load(cls, file: Path, identity: Mapping[str, str]) -> "State | None":
        """The stored state of a replay; None if it never began.

        Raises:
            InvalidOption: the file is something else, or belongs to another replay.
        """
        try:
            first, *lines = file.read_bytes().split(b"\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidOption(f"{file}: {error.strerror}") from None
        try:
            plan = msgspec.json.decode(first, type=Plan)
        except msgspec.MsgspecError:
            raise InvalidOption(f"{file} is not the state of a replay") from None
        if plan.format != FORMAT:
            raise InvalidOption(f"{file} was written by another version of Penstock")
        for name in sorted(plan.identity.keys() | identity.keys()):
            was, now = plan.identity.get(name), identity.get(name)
            if was != now:
                raise InvalidOption(
                    f"{file} belongs to another replay, with {name} {was or '-'} instead of {now or '-'}: "
                    "give this one its own file with --state FILE"
                )
        done = 0
        for line in lines:
            with suppress(msgspec.MsgspecError):
                done = max(done, msgspec.json.decode(line, type=_Done).done)
        return cls(file, plan, done)

    @property
    def is_finished(self) -> bool:
        """All slices are published."""
        return self.done >= len(self.plan.slices)

    def advance(self) -> None:
        """Record one more published slice."""
        self.rows_done += self.plan.slices[self.done].rows
        self.done += 1
        with self.file.open("ab") as opened:
            opened.write(b"\n" + msgspec.json.encode(_Done(self.done)))
            opened.flush()
            os.fsync(opened.fileno())
