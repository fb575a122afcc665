"""A form whose frames can be read: what a test sees is what a subscriber would.

A frame is one line, `topic sequence flags: payload`. Topics without blanks and payloads without line
ends read back unchanged.
"""

import re
from collections.abc import Sequence
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.delivery.reencoding import PendingEncoding
from penstock.core.ports.connection import Encoding, Frame
from penstock.runs import NEVER, Run, Shape

_FRAME = re.compile(
    rb"(?P<topic>[^ ]+) (?P<sequence>\d+)(?P<retained> retained)?(?P<again> again)?"
    rb"(?: ids=(?P<identifiers>[\d,]+))?(?: left=(?P<left>\d+))?"
    rb"(?: qos=(?P<qos>\d) number=(?P<number>(?s:..)))?: (?P<payload>[^\n]*)\n"
)
NUMBER_BYTES = 2


class Delivered(Struct, frozen=True):
    """One frame, read back."""

    topic: str
    sequence: int
    payload: bytes
    qos: int = 0
    number: int = 0
    is_retained: bool = False
    is_again: bool = False
    identifiers: tuple[int, ...] = ()
    left: int | None = None
    """Seconds of life that were left when the frame was made; None if it has no end."""


def read_frames(data: bytes) -> list[Delivered]:
    """Every frame in some bytes that were written.

    Raises:
        ValueError: there is something in them that is no frame.
    """
    delivered: list[Delivered] = []
    position = 0
    while position < len(data):
        found = _FRAME.match(data, position)
        if found is None:
            raise ValueError(f"no frame at {data[position : position + 40]!r}")
        delivered.append(_read(found))
        position = found.end()
    return delivered


def _read(found: "re.Match[bytes]") -> Delivered:
    identifiers, left = found["identifiers"], found["left"]
    return Delivered(
        found["topic"].decode(),
        int(found["sequence"]),
        found["payload"],
        int(found["qos"] or 0),
        int.from_bytes(found["number"] or b"", "big"),
        found["retained"] is not None,
        found["again"] is not None,
        tuple(map(int, identifiers.split(b","))) if identifiers else (),
        int(left) if left else None,
    )


class PlainEncoding(Struct, frozen=True, kw_only=True):
    """What a subscriber asked for, as a value; its frames are lines of text."""

    qos: int = 0
    no_local: bool = False
    limit_bytes: int = 0
    identifiers: tuple[int, ...] = ()
    is_retained: bool = False
    has_cursor: bool = False

    def passes(self, shape: Shape, longest: int) -> bool:
        """Lines of text are always encoded."""
        return False

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages at QoS 0, joined."""
        return b"".join(
            before + after for before, after, _ in self._make(runs, 0, now) if self._fits(before, after)
        )

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        """All messages at QoS 1 or 2, each cut where its number goes."""
        level = min(runs[0].shape.qos, self.qos)
        return [frame for frame in self._make(runs, level, now, again) if self._fits(frame[0], frame[1])]

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        """The messages that exceed the limit."""
        level = min(runs[0].shape.qos, self.qos)
        return [run for before, after, run in self._make(runs, level, now) if not self._fits(before, after)]

    def merge(self, *others: Encoding) -> Encoding:
        """One copy for several wishes: the highest QoS and all identifiers."""
        mine = [self, *(other for other in others if isinstance(other, PlainEncoding))]
        return replace(
            self,
            qos=max(each.qos for each in mine),
            no_local=all(each.no_local for each in mine),
            identifiers=tuple(number for each in mine for number in each.identifiers),
            has_cursor=any(each.has_cursor for each in mine),
        )

    def as_retained(self) -> Encoding:
        """The same for values that were there before."""
        return replace(self, is_retained=True)

    def _make(self, runs: Sequence[Run], level: int, now: float, again: bool = False) -> list[Frame]:
        return [
            self._cut(run.part(index, 1), level, now, again) for run in runs for index in range(run.count)
        ]

    def _cut(self, message: Run, level: int, now: float, again: bool) -> Frame:
        words = [f"{message.topic} {message.sequence}"]
        if self.is_retained:
            words.append("retained")
        if again:
            words.append("again")
        if self.identifiers:
            words.append("ids=" + ",".join(map(str, self.identifiers)))
        if message.expires_at != NEVER:
            words.append(f"left={max(ceil(message.expires_at - now), 0)}")
        if level:
            words.append(f"qos={level} number=")
        return " ".join(words).encode(), b": " + message.payload() + b"\n", message

    def _fits(self, before: bytes, after: bytes) -> bool:
        number = NUMBER_BYTES if before.endswith(b"number=") else 0
        return not self.limit_bytes or len(before) + number + len(after) <= self.limit_bytes


def as_plain(encoding: Encoding) -> Encoding:
    """What a door makes of a form when its client is back; after a start only what was asked for is known."""
    if not isinstance(encoding, PendingEncoding):
        return encoding
    made: list[Encoding] = [
        PlainEncoding(
            qos=each.qos, no_local=each.no_local, identifiers=(each.identifier,) * bool(each.identifier)
        )
        for each in encoding.wishes
    ]
    merged = made[0].merge(*made[1:])
    return merged.as_retained() if encoding.is_retained else merged
