"""What became of this turn's messages for those who could not get them at once, as publishers are told."""

from msgspec import Struct

from penstock.model import Run


class Outcome(Struct, frozen=True):
    """What became of a message for those who could not get it at once."""

    dropped: int = 0
    """For so many subscribers it was dropped, or something older to make room for it."""
    blocked: int = 0
    """So many make its publisher wait."""


NOTHING_LOST = Outcome()


class Outcomes(dict[int, list[int]]):
    """By offset: how often dropped, how often held. A turn in which all is well makes none."""

    def note_dropped(self, run: Run) -> None:
        """One more subscriber has lost something because a run came."""
        self.setdefault(run.offset, [0, 0])[0] += 1

    def note_blocked(self, run: Run) -> None:
        """One more subscriber makes the publisher of a run wait."""
        self.setdefault(run.offset, [0, 0])[1] += 1

    def of(self, run: Run) -> Outcome:
        """How many subscribers lost something by a run of this turn, and how many hold its publisher back."""
        if not self:
            return NOTHING_LOST
        offsets = range(run.offset, run.offset + run.count)
        found = [self[offset] for offset in offsets if offset in self]
        return Outcome(sum(dropped for dropped, _ in found), sum(blocked for _, blocked in found))
