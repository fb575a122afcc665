"""The sequences of one topic: which of them a read has met, and which it should have met and did not."""

from collections.abc import Callable, Iterable

from penstock.core.statement import Missing
from penstock.model import Reason

Explain = Callable[[int, int], Reason]
"""Says why messages between two offsets are not there."""


class Sequences:
    """Counts along with a read of one topic, so that every hole is told with its reason."""

    def __init__(self, topic: str, first: int | None, after: int, explain: Explain) -> None:
        """Begin.

        Args:
            first: the first one that is asked for; None for whatever comes first.
            after: the offset after which reading begins.
        """
        self._topic = topic
        self._expected = first
        self.offset = after
        """Of the last message that was met."""
        self._explain = explain
        self._missing: list[Missing] = []

    def add(self, sequences: Iterable[int], offsets: Iterable[int]) -> None:
        """Some messages were read."""
        for sequence, offset in zip(sequences, offsets, strict=True):
            self._note(sequence, offset)
            self._expected, self.offset = sequence + 1, offset

    def missing(self, last: int, before: int) -> tuple[Missing, ...]:
        """All that is missing, if the topic is known to have had sequences up to `last` before an offset."""
        noted = len(self._missing)
        self._note(last + 1, before)
        found = tuple(self._missing)
        del self._missing[noted:]  # whoever goes on reading may still meet them
        return found

    def _note(self, sequence: int, before: int) -> None:
        if sequence <= (self._expected or 1):
            return
        reason = self._explain(self.offset, before)
        if self._expected is not None or reason is Reason.DAMAGED:  # what was before was not asked for
            self._missing.append(Missing(self._topic, self._expected, sequence - 1, reason))
