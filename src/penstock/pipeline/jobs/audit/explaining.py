"""Why a message is not in the lake: what is known of the offsets among which it should be.

A sequence that no row has is the sign of a message that is not there, but it does not say where it was. Its
neighbours do: it was published between them, so it had one of the offsets between theirs, and no other
message has that one. So a reason that covers n of these offsets explains n missing messages and no more.
`accounting.py` sees to it that this holds for all topics together.

When a log loses its end, the next epoch gives its offsets again. So offsets of two epochs can be compared
only where it is known that the one went on behind the other.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from penstock.core.topics import matches
from penstock.pipeline.lake.layout import bucket_of

EXPIRED = "expired"
"""The rows were removed from the lake on purpose."""
NOT_CAPTURED = "not-captured"
"""The log never kept the message, so there is nothing to archive."""
SKIPPED = "skipped"
"""The server left these sequences out: between its neighbours no message was published."""
DAMAGED_FILE = "damaged-file"
"""The rows were in a data file that cannot be read."""
UNEXPLAINED = "unexplained"
NEEDS_NO_ROOM = (NOT_CAPTURED, SKIPPED)
"""Reasons that are true of any number of messages."""

Range = tuple[int, int]
"""Offsets, both ends included."""


class Absence(Struct, frozen=True):
    """Offsets whose rows are not in the lake, at most so many of them, and why."""

    first: int
    last: int
    reason: str
    rows: int | None = None
    """How many there were; None if it is not known."""
    bucket: int | None = None
    """Only topics of this bucket; None for all."""
    is_of_lake: bool = False
    """The lake had them. Otherwise the log did not have them when they were to be archived."""

    def room(self, spans: Iterable[Range]) -> int:
        """How many messages between these offsets it can stand for."""
        offsets = sum(max(0, min(self.last, last) - max(self.first, first) + 1) for first, last in spans)
        return offsets if self.rows is None else min(offsets, self.rows)


class Explaining(Struct, frozen=True):
    """Everything that is known of what is not there."""

    absences: Sequence[Absence] = ()
    log_has: Sequence[Range] = ()
    """Where the log was read without a gap: what is not in the log there was never in it."""
    captured: Sequence[str] = ("#", "$penstock/#")
    """Filters of the topics that the log keeps completely; of others, it keeps what someone is owed."""
    buckets: int = 1

    def reason(self, topic: str, count: int, after: int, before: int, *, is_one_line: bool = True) -> str:
        """Why messages that neither the lake nor the log has, between two offsets, are missing.

        Args:
            is_one_line: what has these two offsets was published one after the other, with nothing but the
                offsets between them in between, and the log that was read is the one that they are of.
        """
        if before - after == 1 and is_one_line:
            return SKIPPED
        unread = list(subtract((after + 1, before - 1), self.log_has if is_one_line else ()))
        if not unread and is_one_line:
            return NOT_CAPTURED
        found = self._find(topic, count, unread, self.absences)
        if found is None and not self.is_captured(topic):
            return NOT_CAPTURED
        return found or UNEXPLAINED

    def is_captured(self, topic: str) -> bool:
        """Whether the log keeps everything of a topic."""
        return any(matches(each, topic) for each in self.captured)

    def was_read(self, offset: int) -> bool:
        """Whether the log was read there."""
        return any(first <= offset <= last for first, last in self.log_has)

    def claim(
        self, topic: str, count: int, first: int, last: int, reason: str
    ) -> tuple[int, int, int] | None:
        """What messages with a reason need of it: the bucket, and the offsets among which they were.

        None if they need nothing: a topic that is not captured may have as many holes as it likes.
        """
        if reason in NEEDS_NO_ROOM or not self.is_captured(topic):
            return None
        bucket, reasons = bucket_of(topic, self.buckets), reason.split(", ")
        own = [
            each
            for each in self.absences
            if each.reason in reasons and each.bucket in (None, bucket) and each.room([(first, last)])
        ]
        return bucket, max(first, min(each.first for each in own)), min(last, max(each.last for each in own))

    def reason_in_lake(self, topic: str, count: int, first: int, last: int) -> str:
        """Why messages with these offsets, which the log has, are not in the lake."""
        own = [each for each in self.absences if each.is_of_lake]
        return self._find(topic, count, [(first, last)], own) or UNEXPLAINED

    def _find(self, topic: str, count: int, spans: list[Range], absences: Sequence[Absence]) -> str | None:
        bucket = bucket_of(topic, self.buckets)
        room: dict[str, int] = {}
        for absence in absences:
            if absence.bucket is None or absence.bucket == bucket:
                found = absence.room(spans)
                if found:
                    room[absence.reason] = room.get(absence.reason, 0) + found
        if sum(room.values()) < count:
            return None
        if DAMAGED_FILE in room:  # the worst that may be true of them
            return DAMAGED_FILE
        return ", ".join(sorted(room))


def subtract(span: Range, ranges: Iterable[Range]) -> Iterator[Range]:
    """What is left of some offsets without others."""
    first, last = span
    for start, end in sorted(ranges):
        if end < first:
            continue
        if start > last:
            break
        if start > first:
            yield first, start - 1
        first = max(first, end + 1)
    if first <= last:
        yield first, last
