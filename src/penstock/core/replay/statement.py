"""Statement builder: sums the chunks of one read into one statement of bounded size.

Missing messages beyond the limit are reported as gaps, one per reason: offsets without topics.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from penstock.common.cursor import Cursor
from penstock.common.statement import Gap, Missing, Served, Statement
from penstock.model import Reason
from penstock.runs import Run


class Chunk(Struct, frozen=True):
    """Runs in the order of their offsets, and what can be said of them."""

    runs: tuple[Run, ...]
    statement: Statement


MOST_TOLD = 1_000
"""Most entries of missing messages, and of gaps, in a statement."""


class Account:
    """Adds up the statements of chunks that follow one another."""

    def __init__(self, after: Cursor, offset: int) -> None:
        """Begin at a place, which is given as a cursor and as an offset."""
        self._after = after
        self._offset = offset
        self._served = 0
        self._missing: list[Missing] = []
        self._latest: dict[str, int] = {}  # where the last entry of a topic stands
        self._gaps: list[Gap] = []
        self._rest: dict[Reason, Gap] = {}  # summary of all that there is no room for
        self._topics: dict[str, Served] = {}

    def add(self, said: Statement, until: int) -> None:
        """Take what is said of the next chunk, which ends at this offset."""
        self._served += said.served
        for missing in said.missing:
            self._note_missing(missing, until)
        for gap in said.gaps:
            if len(self._gaps) < MOST_TOLD:
                self._gaps.append(gap)
            else:
                self._widen(gap.first, gap.last, gap.reason)

    def count(self, runs: Iterable[Run]) -> None:
        """Count what is served of each topic."""
        for run in runs:
            known = self._topics.get(run.topic)
            count = run.count if known is None else known.count + run.count
            self._topics[run.topic] = Served(run.topic, count, run.last_sequence)

    def statement(self, next: Cursor) -> Statement:
        """Return the statement of everything up to a position at the head."""
        gaps = (*self._gaps, *self._rest.values())
        topics = tuple(self._topics.values())
        return Statement(self._after, next, self._served, tuple(self._missing), True, gaps, topics)

    def _note_missing(self, missing: Missing, until: int) -> None:
        index = self._latest.get(missing.topic)
        if index is not None and _is_next(self._missing[index], missing):
            self._missing[index] = replace(self._missing[index], last=missing.last)
        elif len(self._missing) < MOST_TOLD:
            self._latest[missing.topic] = len(self._missing)
            self._missing.append(missing)
        else:
            self._widen(self._offset + 1, until, missing.reason)

    def _widen(self, first: int, last: int, reason: Reason) -> None:
        known = self._rest.get(reason, Gap(first, last, reason))
        self._rest[reason] = Gap(min(known.first, first), max(known.last, last), reason)


def _is_next(one: Missing, other: Missing) -> bool:
    """Return whether a missing range continues another for the same reason."""
    return other.first == one.last + 1 and other.reason is one.reason
