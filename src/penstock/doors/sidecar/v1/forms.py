"""How subscribers of our own service want their messages: many in one event, the same bytes for all.

A server has three such forms, for what is live, for the past and for retained values, and each is one object:
core compares them by identity and encodes messages once for everyone who has the same.
"""

from collections.abc import Sequence

from penstock.core.marks import LogMarks
from penstock.core.ports import Form, Frame
from penstock.model import Run
from penstock.wire.sidecar.runs import encode_deliveries


class DeliveryForm:
    """Deliveries, one after another.

    Args:
        retained: the form of values that were there before a filter; without one this is that form.
    """

    __slots__ = ("_marks", "_retained", "is_replay", "is_retained")

    qos = 0
    no_local = False
    has_cursor = True
    limit_bytes = 0

    def __init__(
        self, marks: LogMarks, retained: "DeliveryForm | None" = None, *, is_replay: bool = False
    ) -> None:
        self._marks = marks
        self._retained = retained
        self.is_retained = retained is None
        self.is_replay = is_replay

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages, in as few deliveries as clients take."""
        marks = self._marks
        return encode_deliveries(
            runs, marks.cursor, marks.epoch_of, is_replay=self.is_replay, is_retained=self.is_retained
        )

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        """Each message by itself; nothing here has a delivery number, so nothing is cut."""
        parts = [run.part(index, 1) for run in runs for index in range(run.count)]
        return [(self.encode((part,), now), b"", part) for part in parts]

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        """Nobody said what is too large."""
        return []

    def merge(self, other: Form) -> Form:
        """One copy for overlapping filters, which are all live."""
        return self

    def as_retained(self) -> Form:
        """The form of values that were published before the filter was added."""
        return self if self._retained is None else self._retained


class Forms:
    """The forms of one server."""

    def __init__(self, marks: LogMarks) -> None:
        retained = DeliveryForm(marks)
        self.live = DeliveryForm(marks, retained)
        self.past = DeliveryForm(marks, retained, is_replay=True)
