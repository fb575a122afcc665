"""Reasons for missing messages, and the accounting that uses each reason only once.

A sequence without a row shows that a message is missing, but not its offset. Its neighbours do: it was
published between them, so it had one of the offsets in between, which no other message has. So a reason that
covers n of these offsets explains at most n missing messages.

A reason may explain gaps of several topics. So each explained gap lays a **claim** to as many offsets of the
reason, and all claims together have to find room.

A log that loses its end assigns the offsets again in the next epoch. So offsets of two epochs are comparable
only where one is known to continue the other.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from penstock.common.topics import matches
from penstock.lake import DataFile, Manifest
from penstock.lake.layout import BUCKET, bucket_of
from penstock.model import Reason
from penstock.spark.jobs.audit.runs import DAMAGED, GAP, LOG, READ, Evidence, Finding

NOT_CAPTURED = "not-captured"
"""The log did not capture the message, so it cannot be archived."""
SKIPPED = "skipped"
"""The server skipped these sequences: no message was published between the neighbours."""
DAMAGED_FILE = "damaged-file"
"""The rows were in a data file that is unreadable."""
UNEXPLAINED = "unexplained"
NEEDS_NO_ROOM = (NOT_CAPTURED, SKIPPED)
"""Reasons that explain any number of messages."""
Range = tuple[int, int]
"""Offsets, both ends included."""
_BOTH = ", "


class Absence(Struct, frozen=True):
    """Offsets whose rows are not in the lake, with the reason."""

    first: int
    last: int
    reason: str
    rows: int | None = None
    """Number of rows; None if unknown."""
    bucket: int | None = None
    """Only topics of this bucket; None for all."""
    is_of_lake: bool = False
    """The lake had the rows. Otherwise the log no longer had them when they were due."""

    def room(self, spans: Iterable[Range]) -> int:
        """Number of messages between these offsets that it can explain."""
        offsets = sum(max(0, min(self.last, last) - max(self.first, first) + 1) for first, last in spans)
        return offsets if self.rows is None else min(offsets, self.rows)


class Reasons(Struct, frozen=True):
    """All known reasons for missing messages."""

    absences: Sequence[Absence] = ()
    log_has: Sequence[Range] = ()
    """Ranges of the log read without a gap: a message not in there was never in the log."""
    captured: Sequence[str] = ("#", "$penstock/#")
    """Filters of the topics that the log captures completely; of other topics it has only what sessions
    queue.
    """
    buckets: int = 1

    def reason(self, topic: str, count: int, after: int, before: int, *, is_one_line: bool = True) -> str:
        """The reason why messages between two offsets are in neither the lake nor the log.

        Args:
            is_one_line: the two offsets belong to one continuous history, which is that of the log that was
                read.
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
        """The log captures all messages of a topic."""
        return any(matches(each, topic) for each in self.captured)

    def was_read(self, offset: int) -> bool:
        """The log was read at this offset."""
        return any(first <= offset <= last for first, last in self.log_has)

    def claim(
        self, topic: str, count: int, first: int, last: int, reason: str
    ) -> tuple[int, int, int] | None:
        """The room that explained messages use up: the bucket, and the range of their offsets.

        None if they need no room: a topic that is not captured may have any number of gaps.
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
        """The reason why messages that the log has are not in the lake."""
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
        if DAMAGED_FILE in room:  # the worst possible reason wins
            return DAMAGED_FILE
        return ", ".join(sorted(room))


def collect_reasons(manifest: Manifest, seen: Iterable[Evidence], captured: tuple[str, ...]) -> Reasons:
    """All reasons from the manifest, damaged files and the log.

    Args:
        seen: evidence about files and the log, with or without runs.
        captured: filters of the topics that the log captures completely.
    """
    seen = list(seen)
    readable = {each.path for each in seen if each.kind == READ}
    damaged = [
        manifest.files[each.path] for each in seen if each.kind == DAMAGED and each.path not in readable
    ]
    gaps = [each for each in seen if each.kind == GAP and each.path == LOG]
    return Reasons(
        absences=(
            *_expired(manifest),
            *(
                Absence(gap.first, gap.last, gap.reason)
                for gap in manifest.gaps
                if gap.reason != Reason.LOST_UNCOMMITTED
            ),
            *(_of_damaged(file) for file in damaged),
            *(Absence(*_offsets(gap), str(gap.text)) for gap in gaps if gap.text == Reason.NEVER_STORED),
        ),
        log_has=tuple(_read_of_log(seen, [_offsets(gap) for gap in gaps])),
        captured=captured,
        buckets=max(manifest.buckets, 1),
    )


def _expired(manifest: Manifest) -> Iterator[Absence]:
    for entry in manifest.expired:
        bucket = entry.partition.get(BUCKET)
        yield Absence(
            entry.first_offset,
            entry.last_offset,
            Reason.EXPIRED,
            entry.rows,
            None if bucket is None else int(bucket),
            is_of_lake=True,
        )


def _of_damaged(file: DataFile) -> Absence:
    bucket = file.partition.get(BUCKET)
    return Absence(
        file.first_offset or 0,
        file.last_offset or 0,
        DAMAGED_FILE,
        file.rows,
        None if bucket is None else int(bucket),
        is_of_lake=True,
    )


def _read_of_log(seen: Iterable[Evidence], gaps: list[Range]) -> Iterator[Range]:
    for each in seen:
        if each.kind == READ and each.path == LOG:
            yield from subtract(_offsets(each), gaps)


def _offsets(each: Evidence) -> Range:
    assert each.first_offset is not None
    assert each.last_offset is not None
    return each.first_offset, each.last_offset


def subtract(span: Range, ranges: Iterable[Range]) -> Iterator[Range]:
    """Offsets of a range that are not in other ranges."""
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


class Excess(Struct, frozen=True):
    """Messages missing between two offsets beyond what their reason explains."""

    first: int
    last: int
    reason: str
    messages: int
    """Number of unexplained messages."""


def find_excess(claims: Iterable[Finding], absences: Sequence[Absence]) -> Iterator[Excess]:
    """Unsatisfied claims, when each absence is used only once.

    Greedy: claims that end first take the lowest free offsets, so a claim fails only if no assignment
    satisfies all. Claims to several reasons take what is left.
    """
    ordered = sorted(claims, key=lambda claim: (_BOTH in claim.reason, claim.last, -claim.first))
    rooms = list(_rooms(absences, ordered))
    for claim in ordered:
        wanted = claim.messages
        for room in rooms:
            if not wanted or room.first > claim.last:
                break
            if room.left and _fits(room, claim):
                overlap = min(room.last, claim.last) - max(room.first, claim.first) + 1
                taken = max(0, min(wanted, room.left, overlap))
                room.left -= taken
                wanted -= taken
        if wanted:
            yield Excess(claim.first, claim.last, claim.reason, wanted)
        rooms = [room for room in rooms if room.left]


class _Room:
    """Rest of an absence, or of a part of one."""

    def __init__(self, absence: Absence, first: int, last: int) -> None:
        self.absence = absence
        self.first = first
        self.last = last
        offsets = last - first + 1
        self.left = offsets if absence.rows is None else min(offsets, absence.rows)


def _fits(room: _Room, claim: Finding) -> bool:
    absence = room.absence
    return absence.reason in claim.reason.split(_BOTH) and absence.bucket in (None, claim.epoch)


def _rooms(absences: Sequence[Absence], claims: Sequence[Finding]) -> Iterator[_Room]:
    """Absences by offset, split where claims begin and end, so that each part belongs to a claim or not.

    An absence with fewer rows than offsets is not split, because the offsets of its rows are unknown.
    """
    cuts = sorted({claim.first for claim in claims} | {claim.last + 1 for claim in claims})
    rooms: list[_Room] = []
    for absence in absences:
        first = absence.first
        if absence.rows is None:
            for cut in cuts[bisect_left(cuts, first + 1) : bisect_left(cuts, absence.last + 1)]:
                rooms.append(_Room(absence, first, cut - 1))
                first = cut
        rooms.append(_Room(absence, first, absence.last))
    yield from sorted(rooms, key=lambda room: (room.first, room.last))
