"""What a session has on its way, as it is stored: steps in the order they were made, a window now and then.

To store a whole window in every commit would cost more than the messages. So a turn stores only its steps,
and a window is written when many steps have come together; at start the steps after it are made again.
"""

from collections.abc import Iterator, Sequence

from penstock.core.moves import (
    COMPLETED,
    KIND_BITS,
    LEFT,
    PLAIN,
    RECEIVED,
    RELEASED,
    RETAINED_LEFT,
    SHARED_LEFT,
    Step,
)
from penstock.core.records import Sent, WindowRecord


class Window:
    """A session's window while the steps of its past are made again."""

    def __init__(self, record: WindowRecord | None = None) -> None:
        self.sent: dict[int, Sent | None] = dict(record.sent) if record else {}
        self.received: set[int] = set(record.received) if record else set()
        self.moves = record.moves if record else -1  # steps up to here are contained

    def make(self, steps: Sequence[Step]) -> None:
        """Make steps again. To make the last of them twice does no harm."""
        words = iter(steps)
        for word in words:
            assert isinstance(word, int)
            number, kind = word >> KIND_BITS, word & ((1 << KIND_BITS) - 1)
            if kind not in PLAIN:
                self.sent.pop(number, None)  # it goes to the end: what is sent again keeps this order
                self.sent[number] = _read_sent(kind, words)
            elif kind == COMPLETED:
                self.sent.pop(number, None)
            elif kind == RELEASED:
                self.sent[number] = None
            elif kind == RECEIVED:
                self.received.add(number)
            else:
                self.received.discard(number)


def _read_sent(kind: int, words: Iterator[Step]) -> Sent:
    offset = next(words)
    assert isinstance(offset, int)
    for base in (SHARED_LEFT, RETAINED_LEFT, LEFT):
        if kind >= base:
            share = next(words) if base == SHARED_LEFT else None
            assert share is None or isinstance(share, str)
            return Sent(offset, kind - base + 1, base == RETAINED_LEFT, share)
    raise AssertionError("a delivery leaves at QoS 1 or 2")
