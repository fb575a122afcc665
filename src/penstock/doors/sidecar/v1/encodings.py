"""Encodings of messages for subscribers of `penstock.v1`: many in one event, the same bytes for all.

A server has three of them, for live messages, replayed messages and retained values, each one object: core
compares them by identity and encodes messages once for all subscribers of the same.
"""

from collections.abc import Sequence

from penstock.core.replay.message_ids import MessageIds
from penstock.doors.sidecar.nexusd.events import UnnumberedEncoding
from penstock.model import Run
from penstock.wire.sidecar.deliveries import encode_deliveries


class DeliveryEncoding(UnnumberedEncoding):
    """Deliveries, one after another."""

    __slots__ = ("_is_replay", "_marks")

    def __init__(
        self, marks: MessageIds, retained: "DeliveryEncoding | None" = None, *, is_replay: bool = False
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


class DeliveryEncodings:
    """The forms of one server."""

    def __init__(self, marks: MessageIds) -> None:
        retained = DeliveryEncoding(marks)
        self.live = DeliveryEncoding(marks, retained)
        self.past = DeliveryEncoding(marks, retained, is_replay=True)
