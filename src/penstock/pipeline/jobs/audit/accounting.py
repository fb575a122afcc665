"""Makes sure that no reason is used up twice: a gap of one offset explains one missing message, whoever asks.

What explains the holes of one topic may explain those of others as well, so each hole that has a reason lays
a **claim** to as many of the offsets that it lies between. All claims together have to find room.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from penstock.pipeline.jobs.audit.explaining import Absence
from penstock.pipeline.jobs.audit.findings import Finding

_BOTH = ", "


class _Room:
    """What is left of an absence, or of a part of one."""

    def __init__(self, absence: Absence, first: int, last: int) -> None:
        self.absence = absence
        self.first = first
        self.last = last
        offsets = last - first + 1
        self.left = offsets if absence.rows is None else min(offsets, absence.rows)


class Excess(Struct, frozen=True):
    """More messages are missing between two offsets than their reason stands for."""

    first: int
    last: int
    reason: str
    messages: int
    """How many too many."""


def excess_of(claims: Iterable[Finding], absences: Sequence[Absence]) -> Iterator[Excess]:
    """What is left of claims when every absence is used up once.

    Each claim takes the lowest offsets that are left, those that end first take first: then a claim goes
    without only if there is no way to satisfy all. Claims to more than one reason take what the others left.
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


def _fits(room: _Room, claim: Finding) -> bool:
    absence = room.absence
    return absence.reason in claim.reason.split(_BOTH) and absence.bucket in (None, claim.epoch)


def _rooms(absences: Sequence[Absence], claims: Sequence[Finding]) -> Iterator[_Room]:
    """Absences by offset, cut where claims begin and end, so that each part is a claim's or is not.

    Of an absence that has fewer rows than offsets it is not known where they were: it stays in one piece.
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
