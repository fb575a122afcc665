"""Expiry of stored messages on the monotonic clock of this process.

Stored messages have wall times, and the wall clock can be changed at any time. So the difference of the two
clocks is recorded at start and after each change. A message is judged by the difference at its publish time,
an older one by that at start.
"""

from bisect import bisect_right
from collections.abc import Iterable

from penstock.core.runtime.clock import Clock
from penstock.model import Run
from penstock.storage.disk.pieces.frames import expiry_of

JUMP_S = 0.5
"""Smaller changes are clock synchronisation, larger ones a changed clock."""


class ExpiryClock:
    """Difference of wall and monotonic clock, by offset."""

    def __init__(self, clock: Clock, first_offset: int) -> None:
        """Args:
        first_offset: the first offset of this process.
        """
        self._clock = clock
        self._started_at = clock.monotonic()
        self._first_offset = first_offset
        self._offsets = [0]
        self._leads = [self._lead()]

    def _lead(self) -> float:
        return self._clock.wall_us() / 1_000_000 - self._clock.monotonic()

    def note(self, offset: int) -> None:
        """Record the current difference of the clocks for messages from this offset on."""
        lead = self._lead()
        if abs(lead - self._leads[-1]) > JUMP_S:
            self._offsets.append(offset)
            self._leads.append(lead)

    def set_expiry(self, runs: Iterable[Run]) -> None:
        """Set `expires_at` of stored runs."""
        for run in runs:
            expires_at = expiry_of(run)
            if expires_at is None:
                continue
            lead = self._leads[bisect_right(self._offsets, run.offset) - 1]
            run.expires_at = expires_at / 1_000_000 - lead
            if run.offset < self._first_offset:
                # A clock that was set back before the start must not prolong the lifetime.
                run.expires_at = min(run.expires_at, self._started_at + run.ttl)
