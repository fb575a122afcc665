"""Log and state store in memory: the default, and the reference for other implementations.

Commits at once. Nothing outlives the process, so each start has a new log id.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from secrets import token_hex

from msgspec import Struct

from penstock.common.statement import Gap
from penstock.core.ports.log import Listing, Settled, Span, Ticket, Wanted
from penstock.core.ports.turn import Sequencer, Turn, find_message
from penstock.core.replay.sources import weight_of
from penstock.core.settings import LogSettings
from penstock.core.topics.ring import RUN_BYTES
from penstock.model import Door, Reason
from penstock.runs import Run, Shape

_offset_of = attrgetter("offset")
_GONE = Run("", b"", 0, 0, 0, Shape("", Door.SERVER, 0, False, True))
"""Placeholder for a removed run: frees its memory before the list is compacted."""
SHED_BYTES = 256 * 1024
"""Bytes removed per step after the limit was lowered."""


class MemoryLog:
    """Runs in memory, limited by bytes; the oldest are removed first."""

    is_durable = False
    failure: Exception | None = None
    has_ended = False
    is_behind = False
    queued_bytes = 0
    ticket: Ticket = 0

    def __init__(self, limit_bytes: int) -> None:
        self.log_id = token_hex(8)
        self.epoch = 1
        self.first_offset = 1
        self.last_offset = 0
        self.sequencer = Sequencer(0)
        self.state = MemoryStateStore(self.sequencer)
        self._limit_bytes = limit_bytes
        self._allowed_bytes = limit_bytes  # above the limit until `shed` has reached a lowered one
        self._runs: list[Run] = []
        self._start = 0  # runs before this index are removed; the list is compacted in steps
        self._size = 0

    # Upkeep

    is_idle = True

    @property
    def stored_bytes(self) -> int:
        return self._size

    def configure(self, settings: LogSettings) -> Callable[[], bool]:
        """Apply a changed limit; the step that is returned removes the excess."""
        self._limit_bytes = settings.memory_bytes
        self._allowed_bytes = max(self._limit_bytes, min(self._allowed_bytes, self._size))
        return self.shed

    def trim(self, queued_from: int | None) -> None:
        """Do nothing: every commit applies the limit."""

    def reap(self) -> bool:
        """Do nothing: a log in memory has no holds."""
        return False

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def shed(self) -> bool:
        """Remove one step of excess; return True if there is more."""
        self._allowed_bytes = max(self._limit_bytes, self._allowed_bytes - SHED_BYTES)
        self._trim()
        return self._allowed_bytes > self._limit_bytes

    # Commits: nothing waits in memory

    def commit(self, turn: Turn) -> None:
        """Append the runs of a turn, and apply its changes of records."""
        for run in turn.runs:
            self._runs.append(run)
            self.last_offset = run.last_offset
            self._size += len(run.slab) + RUN_BYTES
            if self._size > self._allowed_bytes:
                self._trim()
        self.state.apply(turn)

    def is_committed(self, ticket: Ticket) -> bool:
        """Always True."""
        return True

    def when_committed(self, ticket: Ticket, callback: Settled) -> None:
        """Call back at once."""
        callback(None)

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        """Call back at once."""
        callback()

    def uncommitted(self, after: int) -> list[Run]:
        """Runs of the present turn after an offset."""
        return [run for run in self.sequencer.turn.runs if run.last_offset > after]

    # Reading

    async def read(self, after: int, limit_bytes: int, wanted: Wanted | None = None) -> Span:
        """Runs after an offset, oldest first."""
        runs: list[Run] = []
        known: dict[str, bool] = {}
        until = self.last_offset
        for index in range(self._index_after(after), len(self._runs)):
            run = self._runs[index]
            if wanted is not None and run.topic not in known:
                known[run.topic] = wanted(run.topic)
            if known.get(run.topic, True):
                if limit_bytes <= 0:
                    until = run.offset - 1
                    break
                runs.append(run)
                limit_bytes -= weight_of(run)
        gaps = (Gap(after + 1, self.first_offset - 1, Reason.RETENTION),)
        return Span(tuple(runs), max(until, after), gaps if after + 1 < self.first_offset else ())

    def fetch(self, offsets: Sequence[int], callback: Callable[[dict[int, Run]], None]) -> None:
        """Single messages by offset, at once."""
        callback(self.load(offsets))

    def load(self, offsets: Sequence[int]) -> dict[int, Run]:
        """Single messages by offset; missing ones are omitted."""
        found: dict[int, Run] = {}
        for offset in offsets:
            index = self._index_after(offset - 1)
            runs = self._runs[index : index + 1] if offset <= self.last_offset else self.sequencer.turn.runs
            if (message := find_message(runs, offset)) is not None:
                found[offset] = message
        return found

    def reason_of(self, offset: int) -> Reason:
        return Reason.RETENTION

    def scan(self, after: int, wanted: Wanted) -> Iterator[Listing]:
        """Every message at QoS 1 or 2 after an offset."""
        runs = islice(self._runs, self._index_after(after), None)
        known: dict[str, bool] = {}
        found: list[Run] = []
        for run in runs:
            if run.topic not in known:
                known[run.topic] = wanted(run.topic)
            if run.shape.qos and known[run.topic]:
                found.append(run)
        if found:
            yield Listing.of_runs(found)

    def last_sequence(self, topic: str) -> int:
        """Always 0: no earlier process has committed anything."""
        return 0

    def last_sequences(self, topics: Sequence[str]) -> dict[str, int]:
        """Always 0: no earlier process has committed anything."""
        return dict.fromkeys(topics, 0)

    has_unreadable_names = False

    async def topics_after(self, name: str, limit: int) -> list[tuple[str, int]]:
        """Always empty: no earlier process has committed anything."""
        return []

    async def find_sequence(self, topic: str, sequence: int) -> int | None:
        """Offset before the first message of a topic from this sequence on."""
        for run in islice(self._runs, self._start, None):
            if run.topic == topic and run.sequence + run.count > sequence:
                return run.offset - 1
        return None

    def offset_at(self, wall_us: int) -> int:
        """Offset before the first message at or after a time."""
        for run in islice(self._runs, self._start, None):  # linear search: the clock may have been set back
            if run.published_at >= wall_us:
                return run.offset - 1
        return self.last_offset

    def epochs(self) -> tuple[int, ...]:
        """Only the current one: each start has a new log."""
        return (self.epoch,)

    def end_of(self, epoch: int) -> int | None:
        """`last_offset` for the only epoch."""
        return self.last_offset if epoch == self.epoch else None

    def _index_after(self, offset: int) -> int:
        """Index of the first run that ends after an offset."""
        index = bisect_right(self._runs, offset, lo=self._start, key=_offset_of)
        return index - 1 if index > self._start and self._runs[index - 1].last_offset > offset else index

    def _trim(self) -> None:
        while self._size > self._allowed_bytes and self._start < len(self._runs):
            run = self._runs[self._start]
            self._size -= len(run.slab) + RUN_BYTES
            self.first_offset = run.offset + run.count
            self._runs[self._start] = _GONE
            self._start += 1
        if self._start > 1024 and self._start * 2 > len(self._runs):
            del self._runs[: self._start]
            self._start = 0


class MemoryStateStore:
    """Records by table and key, or by table and number."""

    def __init__(self, sequencer: Sequencer) -> None:
        self._sequencer = sequencer
        self._tables: dict[str, dict[str | int, Struct]] = {}

    def apply(self, turn: Turn) -> None:
        """Apply the changes of a finished turn."""
        if not (turn.puts or turn.deletes or turn.cuts):
            return  # as after most turns
        changed = [*turn.cuts, *(table for table, _ in turn.puts), *(table for table, _ in turn.deletes)]
        for table in dict.fromkeys(changed):
            turn.apply_to(table, self._tables.setdefault(table, {}))

    def scan(self, table: str) -> Iterator[tuple[str, Struct]]:
        for key, record in self._read(table).items():
            assert isinstance(key, str)
            yield key, record

    def replay(self, table: str) -> Iterator[tuple[int, Struct]]:
        numbered = {key: record for key, record in self._read(table).items() if isinstance(key, int)}
        yield from sorted(numbered.items())

    def _read(self, table: str) -> dict[str | int, Struct]:
        records = dict(self._tables.get(table, {}))
        self._sequencer.turn.apply_to(table, records)
        return records
