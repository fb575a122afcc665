"""In-flight journal: rebuilds in-flight windows from the steps that each turn stored.

A step is a word `number << 4 | kind`. A sent delivery is followed by its offset, and by the filter of its
shared group if it has one. Storing a whole window with every commit would cost more than the messages, so a
turn stores its steps only. A window is written after many steps, and recovery replays the steps after it.
"""

from collections.abc import Iterator, Sequence

from penstock.core.delivery.inflight import (
    COMPLETED,
    CONFIRMED,
    FORGOTTEN,
    KIND_BITS,
    RECEIVED,
    RETAINED_SENT,
    SENT,
    SHARED_SENT,
    Step,
)
from penstock.core.durability.records import Sent, WindowRecord

PLAIN = (COMPLETED, CONFIRMED, RECEIVED, FORGOTTEN)
"""Nothing follows these."""


class Window:
    """A session's window while the steps of its past are made again."""

    def __init__(self, record: WindowRecord | None = None) -> None:
        self.sent: dict[int, Sent | None] = dict(record.sent) if record else {}
        self.received: set[int] = set(record.received) if record else set()
        self.steps_until = record.steps_until if record else -1  # steps up to here are contained

    def make(self, steps: Sequence[Step]) -> None:
        """Apply steps. Idempotent for the last of them."""
        words = iter(steps)
        for word in words:
            assert isinstance(word, int)
            number, kind = word >> KIND_BITS, word & ((1 << KIND_BITS) - 1)
            if kind not in PLAIN:
                self.sent.pop(number, None)  # it goes to the end: what is sent again keeps this order
                self.sent[number] = _read_sent(kind, words)
            elif kind == COMPLETED:
                self.sent.pop(number, None)
            elif kind == CONFIRMED:
                self.sent[number] = None
            elif kind == RECEIVED:
                self.received.add(number)
            else:
                self.received.discard(number)


def _read_sent(kind: int, words: Iterator[Step]) -> Sent:
    offset = next(words)
    assert isinstance(offset, int)
    for base in (SHARED_SENT, RETAINED_SENT, SENT):
        if kind >= base:
            share = next(words) if base == SHARED_SENT else None
            assert share is None or isinstance(share, str)
            return Sent(offset, kind - base + 1, base == RETAINED_SENT, share)
    raise AssertionError("a delivery leaves at QoS 1 or 2")
