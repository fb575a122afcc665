"""When stored messages expire, on the clock of this process.

What is stored has wall times, and the wall clock may be set by an hour at any time. So it is noted how far
the two clocks are apart, at the start and whenever that changes; what was published in between is judged by
what was true then, and what is older by what was true at the start.
"""

from bisect import bisect_right
from collections.abc import Iterable

from penstock.core.clock import Clock
from penstock.model import Run
from penstock.storage.disk.frames import expiry_of

JUMP_S = 0.5
"""Less than this is the clock being kept right, and more somebody setting it."""


class Lifetimes:
    """How far the wall clock was ahead of the monotonic one, by offset."""

    def __init__(self, clock: Clock, first_offset: int) -> None:
        """Args:
        first_offset: that is given in this process.
        """
        self._clock = clock
        self._started_at = clock.monotonic()
        self._first_offset = first_offset
        self._offsets = [0]
        self._leads = [self._lead()]

    def _lead(self) -> float:
        return self._clock.wall_us() / 1_000_000 - self._clock.monotonic()

    def note(self, offset: int) -> None:
        """From this offset on the clocks are as far apart as they are now."""
        lead = self._lead()
        if abs(lead - self._leads[-1]) > JUMP_S:
            self._offsets.append(offset)
            self._leads.append(lead)

    def revive(self, runs: Iterable[Run]) -> None:
        """Give stored runs their expiry on the monotonic clock."""
        for run in runs:
            expires_at = expiry_of(run)
            if expires_at is None:
                continue
            lead = self._leads[bisect_right(self._offsets, run.offset) - 1]
            run.expires_at = expires_at / 1_000_000 - lead
            if run.offset < self._first_offset:
                # A clock that was set back while nobody looked must not prolong a life.
                run.expires_at = min(run.expires_at, self._started_at + run.ttl)
