"""How subscribers of NexusD's service want their messages: as events, the same bytes for all.

A server has three such forms, for live messages, retained values and messages of the past, and each is one
object: core compares them by identity and encodes a message once for everyone who has the same.
"""

from collections.abc import Sequence

from penstock.core.marks import LogMarks
from penstock.core.ports import Form, Frame
from penstock.model import Run
from penstock.wire.sidecar.events import Arm, encode_messages


class EventForm:
    """Events, one after another, as they stand in a body.

    Args:
        source: the node that the messages come from.
        arm: which kind of event; one of `Arm`.
    """

    __slots__ = ("_arm", "_marks", "_retained", "_source")

    qos = 0
    no_local = False
    has_cursor = True  # by sequences and by where a pause left off: so messages have to leave in their order
    limit_bytes = 0

    def __init__(self, marks: LogMarks, source: str, arm: int) -> None:
        self._marks = marks
        self._source = source
        self._arm = arm
        self._retained = self if self.is_retained else EventForm(marks, source, Arm.RETAINED)

    @property
    def is_retained(self) -> bool:
        """For values that were published before the subscription was made."""
        return self._arm == Arm.RETAINED

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages, joined."""
        arm, source, ids_of = self._arm, self._source, self._marks.ids_of
        if len(runs) == 1:
            return encode_messages(runs[0], arm, ids_of(runs[0]), source)
        return b"".join([encode_messages(run, arm, ids_of(run), source) for run in runs])

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        """Each message by itself; nothing here has a delivery number, so nothing is cut."""
        parts = [run.part(index, 1) for run in runs for index in range(run.count)]
        return [(self.encode((part,), now), b"", part) for part in parts]

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        """Nobody said what is too large."""
        return []

    def merge(self, other: Form) -> Form:
        """One copy for overlapping filters, which all have the same form."""
        return self

    def as_retained(self) -> Form:
        """The same for retained values."""
        return self._retained
