"""How subscribers of our own service want their messages: many in one event, the same bytes for all.

A server has three such forms, for what is live, for the past and for retained values, and each is one object:
core compares them by identity and encodes messages once for everyone who has the same.
"""

from collections.abc import Sequence

from penstock.core.marks import LogMarks
from penstock.doors.sidecar.forms import UnnumberedForm
from penstock.model import Run
from penstock.wire.sidecar.runs import encode_deliveries


class DeliveryForm(UnnumberedForm):
    """Deliveries, one after another."""

    __slots__ = ("_is_replay", "_marks")

    def __init__(
        self, marks: LogMarks, retained: "DeliveryForm | None" = None, *, is_replay: bool = False
    ) -> None:
        super().__init__(retained)
        self._marks = marks
        self._is_replay = is_replay

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages, in as few deliveries as clients take."""
        marks = self._marks
        return encode_deliveries(
            runs, marks.cursor, marks.epoch_of, is_replay=self._is_replay, is_retained=self.is_retained
        )


class DeliveryForms:
    """The forms of one server."""

    def __init__(self, marks: LogMarks) -> None:
        retained = DeliveryForm(marks)
        self.live = DeliveryForm(marks, retained)
        self.past = DeliveryForm(marks, retained, is_replay=True)
