"""Encodings of messages for subscribers of NexusD's service: events, the same bytes for all.

A server has three of them, for live messages, retained values and replayed messages, each one object: core
compares them by identity and encodes a message once for all subscribers of the same. The base class is shared
with the `penstock.v1` service.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from penstock.core.ports.connection import Encoding, Frame
from penstock.core.replay.message_ids import MessageIds
from penstock.runs import Run, Shape
from penstock.wire.sidecar.events import Arm, encode_messages


class UnnumberedEncoding(ABC):
    """Base encoding of messages without packet identifiers.

    Args:
        retained: the form of values from before the subscription; without one this is that form.
    """

    __slots__ = ("_retained", "is_retained")

    qos = 0
    no_local = False
    has_cursor = True  # a resuming client reports its last sequence, so messages have to leave in order
    limit_bytes = 0

    def __init__(self, retained: Encoding | None) -> None:
        self._retained = retained
        self.is_retained = retained is None

    def passes(self, shape: Shape, longest: int) -> bool:
        """Events are always encoded."""
        return False

    @abstractmethod
    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages, joined."""

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        """Each message by itself; nothing here has a delivery number, so nothing is cut."""
        parts = [run.part(index, 1) for run in runs for index in range(run.count)]
        return [(self.encode((part,), now), b"", part) for part in parts]

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        """No limit of the packet size."""
        return []

    def merge(self, *others: Encoding) -> Encoding:
        """One copy for overlapping filters, which are all live."""
        return self

    def as_retained(self) -> Encoding:
        """The same for retained values."""
        return self if self._retained is None else self._retained


class EventEncoding(UnnumberedEncoding):
    """Events, one after another, as they stand in a body.

    Args:
        source: the node that the messages come from.
        arm: which kind of event; one of `Arm`.
    """

    __slots__ = ("_arm", "_marks", "_source")

    def __init__(self, marks: MessageIds, source: str, arm: int, retained: Encoding | None = None) -> None:
        super().__init__(retained)
        self._marks = marks
        self._source = source
        self._arm = arm

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages, joined."""
        arm, source, ids_of = self._arm, self._source, self._marks.ids_of
        if len(runs) == 1:
            return encode_messages(runs[0], arm, ids_of(runs[0]), source)
        return b"".join([encode_messages(run, arm, ids_of(run), source) for run in runs])


class EventEncodings:
    """The forms of one server."""

    def __init__(self, marks: MessageIds, source: str) -> None:
        retained = EventEncoding(marks, source, Arm.RETAINED)
        self.live = EventEncoding(marks, source, Arm.MESSAGE, retained)
        self.past = EventEncoding(marks, source, Arm.REPLAY, retained)
