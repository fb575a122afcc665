"""Some messages of one topic, read from a place on."""

from penstock.core.cursor import Cursor
from penstock.core.history import History
from penstock.core.statement import Chunk, Missing
from penstock.model import Run

MAX_BYTES = 1 << 20
"""A page with more has no further message."""
USUAL_BYTES = 1024
"""What a message has, in a first guess at how much to read."""


class Page:
    """Up to `limit` messages after a cursor; without one, from the oldest on."""

    def __init__(self, topic: str, limit: int, after: Cursor | None) -> None:
        self._topic = topic
        self._limit = limit
        self._after = after
        self._size = 0
        self._is_full = self._is_at_head = False
        self.messages: list[tuple[Run, int]] = []
        """Runs, and which of their messages are meant."""
        self.missing: list[Missing] = []
        """What should be between the start and the last of the messages."""

    @property
    def next(self) -> Cursor:
        """Where the next page begins; known as soon as there is a message."""
        assert self._after is not None
        return self._after

    async def fill(self, history: History) -> None:
        """Read until the page is full, or ends at the head; then its reader may wait from this turn on."""
        self._is_at_head = False
        if self._after is None:
            self._add(await history.since_sequence(self._topic, 0, limit_bytes=self._wanted_bytes), history)
        if self._is_full or self._is_at_head:
            return
        assert self._after is not None
        replay = history.replay((self._topic,), self._after)
        while not (self._is_full or self._is_at_head):
            self._add(await replay.read(self._wanted_bytes), history)

    @property
    def _wanted_bytes(self) -> int:
        """What is read at once: about as much as is still needed."""
        needed = self._limit - len(self.messages)
        return 1 if needed == 1 else min(needed * USUAL_BYTES, MAX_BYTES)

    def _add(self, chunk: Chunk, history: History) -> None:
        said = chunk.statement
        self._after, self._is_at_head = said.next, said.is_at_head
        for run in chunk.runs:
            for index in range(run.count):
                if self._is_full:
                    self._end_before(run, index, said.missing, history)
                    return
                self.messages.append((run, index))
                self._size += run.stride - run.head
                self._is_full = len(self.messages) == self._limit or self._size >= MAX_BYTES
        self.missing += said.missing

    def _end_before(self, run: Run, index: int, missing: tuple[Missing, ...], history: History) -> None:
        """Leave a message and what comes after it to the next page."""
        self._after = history.cursor(run.offset + index - 1)
        self.missing += (each for each in missing if each.last < run.sequence + index)
