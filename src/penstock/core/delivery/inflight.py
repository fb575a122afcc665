"""In-flight window of a session: QoS 1 and 2 deliveries that are not complete.

The window belongs to the session, not to a connection. A delivery has a number from 1 to 65535 (MQTT's packet
identifier) that is unique while in use. A QoS 2 delivery that the client received has no message any more,
and its number is still in use. If the session is stored, the journal gets every change as a step.
"""

from collections.abc import Callable, Iterable, Sequence

from penstock.core.delivery.outbox import Entry
from penstock.core.ports.connection import Encoding, Frame
from penstock.runs import Run

LAST_NUMBER = 65_535

COMPLETED = 0
"""Step: a delivery is complete."""
SENT = 1
"""Step: delivery sent at QoS 1; add 1 for QoS 2."""
CONFIRMED = 3
"""Step: the client received a QoS 2 delivery; its number is still in use."""
RECEIVED = 4
"""Step: a QoS 2 message came in."""
RETAINED_SENT = 5
"""As `SENT`, for a retained value."""
FORGOTTEN = 7
"""Step: an incoming QoS 2 message will not be repeated."""
SHARED_SENT = 9
"""As `SENT`, through a shared group."""
KIND_BITS = 4

AWAITS_ACK = 1
"""A delivery at QoS 1, or 2 before its receipt, is named by its level."""
AWAITS_RECEIPT = 2
AWAITS_COMPLETION = 3

Step = int | str


def step(number: int, kind: int) -> int:
    """The word for one step."""
    return number << KIND_BITS | kind


class Pending:
    """One message on its way: enough to send it again."""

    __slots__ = ("encoding", "level", "run")

    def __init__(self, run: Run, encoding: Encoding, level: int) -> None:
        self.run = run
        self.encoding = encoding
        self.level = level


class Inflight:
    """The window of one session."""

    __slots__ = ("_last", "entries", "journal", "limit")

    def __init__(self, limit: int, journal: list[Step] | None = None) -> None:
        self.entries: dict[int, Pending | None] = {}
        self.limit = limit
        self.journal = journal  # the session's, or None if nothing of it is stored
        self._last = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __bool__(self) -> bool:
        return bool(self.entries)

    @property
    def room(self) -> int:
        """Free places in the window; 0 after a client reconnected with a smaller window."""
        return max(self.limit - len(self.entries), 0)

    def add_all(
        self,
        frames: Iterable[Frame],
        encoding: Encoding,
        level: int,
        parts: list[bytes],
        share: str | None = None,
    ) -> int:
        """Number deliveries and append their wire bytes to `parts`.

        Returns the first number, 0 if there are no frames.

        Args:
            share: the filter of the shared group that the deliveries belong to.
        """
        entries, number, first, journal = self.entries, self._last, len(parts), self.journal
        base = SHARED_SENT if share else RETAINED_SENT if encoding.is_retained else SENT
        kind = base + level - 1
        for before, after, run in frames:
            number = number + 1 if number < LAST_NUMBER else 1
            while number in entries:
                number = number + 1 if number < LAST_NUMBER else 1
            entries[number] = Pending(run, encoding, level)
            parts += (before, number.to_bytes(2, "big"), after)
            if journal is not None:
                journal += (number << KIND_BITS | kind, run.offset)
                if share is not None:
                    journal.append(share)
        self._last = number
        return int.from_bytes(parts[first + 1], "big") if len(parts) > first else 0

    def awaited_step(self, number: int) -> int | None:
        """Return the step that a delivery waits for, one of `AWAITS_*`; None for an unknown number."""
        if number not in self.entries:
            return None
        pending = self.entries[number]
        return AWAITS_COMPLETION if pending is None else pending.level

    def confirm(self, number: int) -> bool:
        """A QoS 2 delivery was received; forget the message, keep the number. False if unknown."""
        if number not in self.entries:
            return False
        self.entries[number] = None
        if self.journal is not None:
            self.journal.append(step(number, CONFIRMED))
        return True

    def complete_all(self, numbers: Sequence[int], awaited: int) -> int:
        """Complete deliveries that wait for this step, in order, up to one that waits for another.

        Unknown numbers are passed over. Returns how many numbers were taken.
        """
        entries, journal = self.entries, self.journal
        taken = 0
        for number in numbers:
            if number in entries:
                pending = entries[number]
                if (AWAITS_COMPLETION if pending is None else pending.level) != awaited:
                    return taken
                del entries[number]  # not before: what stays keeps its place in the order
                if journal is not None:
                    journal.append(number << KIND_BITS | COMPLETED)
            taken += 1
        return taken

    def complete(self, number: int) -> bool:
        """A delivery is done and its number free. False if unknown."""
        if self.entries.pop(number, self) is self:
            return False
        if self.journal is not None:
            self.journal.append(number << KIND_BITS | COMPLETED)
        return True

    def remove(self, is_unwanted: Callable[[Run], bool]) -> list[Pending]:
        """Remove deliveries of a disconnected session, which acknowledges none of them."""
        removed = {
            number: pending
            for number, pending in self.entries.items()
            if pending is not None and is_unwanted(pending.run)
        }
        for number, pending in removed.items():
            self.give_up(number, pending)
        return list(removed.values())

    def give_up(self, number: int, pending: Pending) -> None:
        """Forget a message that is not sent again."""
        if pending.level == 2:  # its number is the client's until it has said so (MQTT-4.3.3-6)
            self.confirm(number)
        else:
            self.complete(number)

    def take_from(self, first: int) -> list[Pending]:
        """Take out a delivery and everything behind it, because none of it has left."""
        if first not in self.entries:
            return []
        numbers = list(self.entries)
        unsent = numbers[numbers.index(first) :]
        taken: list[Pending] = []
        for number in unsent:
            pending = self.entries[number]
            if pending is not None:
                self.complete(number)
                taken.append(pending)
        return taken

    def take_qos1(self, is_wanted: Callable[[Encoding], bool]) -> list[Entry]:
        """Take out QoS 1 deliveries by their encoding, in order, because others may get them instead."""
        taken = {
            number: (pending.run, pending.encoding)
            for number, pending in self.entries.items()
            if pending is not None and pending.level == 1 and is_wanted(pending.encoding)
        }
        for number in taken:
            self.complete(number)
        return list(taken.values())
