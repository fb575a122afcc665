"""What a replay remembers: its plan, made once, and which slices are published.

A file of JSON lines. The first is the plan, written whole before anything is published; each further line
says that one more slice is done. A line that a crash has cut short counts as not there: then that slice is
tried again under the same key, and the server knows that it was published.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Struct

from penstock.core.ports import Position
from penstock.pipeline.jobs.replay.slices import Slice
from penstock.pipeline.lake.table import make_folder, sync_folder
from penstock.pipeline.source.errors import InvalidOption

FORMAT = 1


class Plan(Struct, frozen=True, kw_only=True):
    """What a replay does, all of it."""

    format: int = FORMAT
    id: str
    """Begins the key of each of its commits."""
    what: dict[str, str]
    """What it was told, and which server gets the messages."""
    log: Position
    """A place in the log of the messages that is not before any of them."""
    slices: tuple[Slice, ...]

    def key(self, number: int) -> str:
        """The key that a slice is committed under."""
        return f"{self.id}:{number}"


class _Done(Struct):
    done: int


class State:
    """The file of a replay."""

    def __init__(self, file: Path, plan: Plan, done: int) -> None:
        self.file = file
        self.plan = plan
        self.done = done
        """How many slices are published, from the first on."""
        self.rows = sum(part.rows for part in plan.slices)
        self.rows_done = sum(part.rows for part in plan.slices[:done])

    @classmethod
    def begin(cls, file: Path, what: Mapping[str, str], log: Position, slices: list[Slice]) -> "State":
        """Write down a new plan, in place of an earlier one."""
        plan = Plan(id=f"replay-{uuid4().hex}", what=dict(what), log=log, slices=tuple(slices))
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
    def load(cls, file: Path, what: Mapping[str, str]) -> "State | None":
        """What is remembered of a replay; None if it never began.

        Raises:
            InvalidOption: the file is something else, or of another replay.
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
        for name in sorted(plan.what.keys() | what.keys()):
            was, now = plan.what.get(name), what.get(name)
            if was != now:
                raise InvalidOption(
                    f"{file} is of another replay, with {name} {was or '-'} in place of {now or '-'}: "
                    "--state FILE gives this one a file of its own"
                )
        done = 0
        for line in lines:
            with suppress(msgspec.MsgspecError):
                done = max(done, msgspec.json.decode(line, type=_Done).done)
        return cls(file, plan, done)

    @property
    def is_finished(self) -> bool:
        """Everything is published."""
        return self.done >= len(self.plan.slices)

    def advance(self) -> None:
        """One more slice is published."""
        self.rows_done += self.plan.slices[self.done].rows
        self.done += 1
        with self.file.open("ab") as opened:
            opened.write(b"\n" + msgspec.json.encode(_Done(self.done)))
            opened.flush()
            os.fsync(opened.fileno())
