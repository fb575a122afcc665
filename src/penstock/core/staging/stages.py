"""Stages and their parts, with the records that recovery reads."""

from collections.abc import Iterator

import structlog
from msgspec import Struct

from penstock.core.access.identity import Identity
from penstock.core.durability.records import CHUNKS, STAGED, ChunkRecord, StagedRecord
from penstock.core.node import Node
from penstock.core.staging.commit import Numbered
from penstock.core.staging.packing import weight_of

log = structlog.get_logger("penstock.stage")

PART_BYTES = 1_000
"""Overhead of a part beside its rows."""
_SECOND_US = 1_000_000


class Part(Struct):
    """The rows of one part of a stage."""

    stage: str
    number: int
    owner: str | None
    chunks: list[Numbered]
    record: int
    """The number of the record that names its chunks."""
    checked: tuple[int, Identity] | None = None
    """Rules generation and identity that its topics were checked for."""
    staged_at: int = 0
    """When it was put into its stage, in wall time."""
    rows: int = 0
    bytes: int = 0

    def __post_init__(self) -> None:
        self.rows = sum(chunk.rows for _, chunk in self.chunks)
        self.bytes = PART_BYTES + sum(weight_of(chunk) for _, chunk in self.chunks)


class Stage(Struct):
    """Stage: the parts under one id."""

    id: str
    owner: str | None
    lapses_at: float
    """On the monotonic clock."""
    parts: dict[int, Part]

    @property
    def staged_at(self) -> int:
        """When the latest of its parts came, in wall time."""
        return max(part.staged_at for part in self.parts.values())

    @property
    def rows(self) -> int:
        """Number of staged messages."""
        return sum(part.rows for part in self.parts.values())

    @property
    def bytes(self) -> int:
        """Weight of the staged messages."""
        return sum(part.bytes for part in self.parts.values())

    def in_order(self) -> list[Part]:
        """Its parts by their numbers."""
        return [self.parts[number] for number in sorted(self.parts)]


class Stages:
    """All stages by id, in memory and in the state store."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._stages: dict[str, Stage] = {}

    def __len__(self) -> int:
        return len(self._stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self._stages.values())

    def find(self, id: str) -> Stage | None:
        """The stage of this id; its time may be over."""
        return self._stages.get(id)

    def lapsed(self) -> list[Stage]:
        """Those whose time is over."""
        return [stage for stage in self if self.has_lapsed(stage)]

    def has_lapsed(self, stage: Stage) -> bool:
        """Return whether a stage has lapsed."""
        return stage.lapses_at <= self._node.clock.monotonic()

    def put(self, part: Part) -> Part | None:
        """Add a stored part to its stage; return the part it replaces."""
        clock, stage = self._node.clock, self._stages.get(part.stage)
        part.staged_at = clock.wall_us()
        if stage is None:
            stage = self._stages[part.stage] = Stage(part.stage, part.owner, 0.0, {})
        stage.lapses_at = clock.monotonic() + self._node.settings.stage.lapse_s
        before = stage.parts.get(part.number)
        stage.parts[part.number] = part
        numbers = tuple(number for number, _ in part.chunks)
        record = StagedRecord(part.stage, part.number, part.owner, part.staged_at, numbers)
        self._node.recorder.put(STAGED, str(part.record), record)
        return before

    def take(self, stage: Stage) -> list[Part]:
        """Remove a stage and return its parts; their chunks stay stored."""
        del self._stages[stage.id]
        for part in stage.parts.values():
            self._node.recorder.delete(STAGED, str(part.record))
        return stage.in_order()

    def forget(self, part: Part) -> None:
        """Delete everything that is stored of a part, complete or not."""
        self._node.recorder.delete(STAGED, str(part.record))
        for number, _ in part.chunks:
            self._node.recorder.delete(CHUNKS, str(number))

    def restore(self, chunks: dict[int, ChunkRecord]) -> list[int]:
        """Recover stages with their chunks.

        Returns the numbers of their records.
        """
        numbers: list[int] = []
        damaged: set[str] = set()
        for name, record in self._node.state.scan(STAGED):
            assert isinstance(record, StagedRecord)
            numbers += int(name), *record.chunks
            found = [(number, chunks.pop(number)) for number in record.chunks if number in chunks]
            part = Part(record.stage, record.part, record.owner, found, int(name), staged_at=record.staged_at)
            if len(found) < len(record.chunks):  # the disk was damaged
                log.error("staged rows are lost", stage=part.stage, part=part.number)
                damaged.add(part.stage)
                self.forget(part)
            else:
                self._restore(part)
        for id in damaged & self._stages.keys():  # what is left must not be taken for all of it
            for part in self.take(self._stages[id]):
                self.forget(part)
        return numbers

    def _restore(self, part: Part) -> None:
        clock = self._node.clock
        part.staged_at = min(part.staged_at, clock.wall_us())  # the clock may have been set back
        age_s = (clock.wall_us() - part.staged_at) / _SECOND_US
        stage = self._stages.setdefault(part.stage, Stage(part.stage, part.owner, 0.0, {}))
        lapse_s = self._node.settings.stage.lapse_s
        stage.lapses_at = max(stage.lapses_at, clock.monotonic() + lapse_s - age_s)
        stage.parts[part.number] = part

    @property
    def bytes(self) -> int:
        """Weight of all stages; counted one by one, for use at start."""
        return sum(stage.bytes for stage in self)
