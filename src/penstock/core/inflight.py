"""Deliveries at QoS 1 and 2 that are not complete yet. It belongs to the session, not to a connection.

Each has a delivery number from 1 to 65535 (MQTT's packet identifier) that is not given again while it
is in use. A QoS 2 delivery that was received but not completed is `RELEASED`: its message is done,
only its number is still held. If the session outlives the server, every change is also noted as a step.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from penstock.core import moves as kinds
from penstock.core.moves import KIND_BITS, Step, step
from penstock.core.ports import Form, Frame
from penstock.core.shared import SharedForm
from penstock.model import Run

LAST_NUMBER = 65_535


class Pending(Struct, frozen=True, gc=False):
    """One message on its way: enough to send it again."""

    run: Run
    form: Form
    level: int


RELEASED = None


class Inflight:
    """The window of one session."""

    __slots__ = ("_last", "entries", "limit", "moves")

    def __init__(self, limit: int, moves: list[Step] | None = None) -> None:
        self.entries: dict[int, Pending | None] = {}
        self.limit = limit
        self.moves = moves  # the session's, or None if nothing of it is stored
        self._last = 0

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def room(self) -> int:
        """How many more may be on their way; none when a client came back with a smaller window."""
        return max(self.limit - len(self.entries), 0)

    def add_all(self, frames: Iterable[Frame], form: Form, level: int, parts: list[bytes]) -> int:
        """Give numbers to deliveries that are about to leave, and append what goes on the wire to `parts`.

        Answers the first number, 0 if there are no frames.
        """
        entries, number, first, moves = self.entries, self._last, len(parts), self.moves
        share = form.group.filter if isinstance(form, SharedForm) else None
        base = kinds.SHARED_LEFT if share else kinds.RETAINED_LEFT if form.is_retained else kinds.LEFT
        kind = base + level - 1
        for before, after, run in frames:
            number = number + 1 if number < LAST_NUMBER else 1
            while number in entries:
                number = number + 1 if number < LAST_NUMBER else 1
            entries[number] = Pending(run, form, level)
            parts += (before, number.to_bytes(2, "big"), after)
            if moves is not None:
                moves += (number << KIND_BITS | kind, run.offset)
                if share is not None:
                    moves.append(share)
        self._last = number
        return int.from_bytes(parts[first + 1], "big") if len(parts) > first else 0

    def release(self, number: int) -> bool:
        """A QoS 2 delivery was received; forget the message, keep the number. False if unknown."""
        if number not in self.entries:
            return False
        self.entries[number] = RELEASED
        if self.moves is not None:
            self.moves.append(step(number, kinds.RELEASED))
        return True

    def complete(self, number: int) -> bool:
        """A delivery is done and its number free. False if unknown."""
        if self.entries.pop(number, self) is self:
            return False
        if self.moves is not None:
            self.moves.append(number << KIND_BITS | kinds.COMPLETED)
        return True

    def remove(self, is_unwanted: Callable[[Run], bool]) -> list[Pending]:
        """Take out deliveries of who is away, and so answers none of them."""
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
            self.release(number)
        else:
            self.complete(number)

    def take_from(self, first: int) -> list[Pending]:
        """Take out a delivery and everything behind it, because none of it has left."""
        numbers = list(self.entries)
        unsent = numbers[numbers.index(first) :] if first in self.entries else []
        taken: list[Pending] = []
        for number in unsent:
            pending = self.entries[number]
            if pending is not None:
                self.complete(number)
                taken.append(pending)
        return taken

    def take_shared(self) -> list[tuple[Run, SharedForm]]:
        """Take out the QoS 1 deliveries of shared groups, which others may get instead, in order."""
        taken = [
            (number, pending.run, pending.form)
            for number, pending in self.entries.items()
            if pending is not None and pending.level == 1 and isinstance(pending.form, SharedForm)
        ]
        for number, _, _ in taken:
            self.complete(number)
        return [(run, form) for _, run, form in taken]
