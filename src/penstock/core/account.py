"""What the chunks of one read say, added up: one statement for all of it, of a size that is bounded.

If more is missing than can be told one by one, the rest is told as gaps, one for each reason: there are
messages missing between these offsets, and it is not said of which topics.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from penstock.core.cursor import Cursor
from penstock.core.ports import Gap
from penstock.core.statement import Missing, Served, Statement
from penstock.model import Reason, Run

MOST_TOLD = 1_000
"""How many entries of missing messages, and of gaps, a statement has at most."""


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
        self._rest: dict[Reason, Gap] = {}  # what is told of all that there is no room for
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
            self._topics[run.topic] = Served(run.topic, count, run.sequence + run.count - 1)

    def statement(self, next: Cursor) -> Statement:
        """What is to be said of everything up to a place at the head."""
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
    """Whether what is missing goes on where it ended, for the same reason."""
    return other.first == one.last + 1 and other.reason is one.reason
