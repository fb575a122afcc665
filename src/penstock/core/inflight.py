"""Deliveries at QoS 1 and 2 that are not complete yet. It belongs to the session, not to a connection.

Each has a delivery number from 1 to 65535 (MQTT's packet identifier) that is not given again while it
is in use. A QoS 2 delivery that was received but not completed is `RELEASED`: its message is done,
only its number is still held.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

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

    __slots__ = ("_last", "entries", "limit")

    def __init__(self, limit: int) -> None:
        self.entries: dict[int, Pending | None] = {}
        self.limit = limit
        self._last = 0

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def room(self) -> int:
        """How many more may be on their way; none when a client came back with a smaller window."""
        return max(self.limit - len(self.entries), 0)

    def add_all(self, frames: Iterable[Frame], form: Form, level: int, parts: list[bytes]) -> None:
        """Give numbers to deliveries that are about to leave, and append what goes on the wire to `parts`."""
        entries, number = self.entries, self._last
        for before, after, run in frames:
            number = number + 1 if number < LAST_NUMBER else 1
            while number in entries:
                number = number + 1 if number < LAST_NUMBER else 1
            entries[number] = Pending(run, form, level)
            parts += (before, number.to_bytes(2, "big"), after)
        self._last = number

    def release(self, number: int) -> bool:
        """A QoS 2 delivery was received; forget the message, keep the number. False if unknown."""
        if number not in self.entries:
            return False
        self.entries[number] = RELEASED
        return True

    def complete(self, number: int) -> bool:
        """A delivery is done and its number free. False if unknown."""
        return self.entries.pop(number, self) is not self

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
            self.entries[number] = RELEASED
        else:
            del self.entries[number]

    def take_shared(self) -> list[tuple[Run, SharedForm]]:
        """Take out the QoS 1 deliveries of shared groups, which others may get instead, in order."""
        taken = [
            (number, pending.run, pending.form)
            for number, pending in self.entries.items()
            if pending is not None and pending.level == 1 and isinstance(pending.form, SharedForm)
        ]
        for number, _, _ in taken:
            del self.entries[number]
        return [(run, form) for _, run, form in taken]
