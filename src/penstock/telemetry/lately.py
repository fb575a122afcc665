"""What a histogram got of late: the difference between now and some seconds ago.

Histograms count from the start of the server. Who wants to know the last seconds looks at one now and then
and remembers what it had; what is measured costs no more for that.
"""

from collections import deque

from penstock.core.clock import Clock
from penstock.core.latency import Histogram, find_share

WINDOW_S = 10.0
"""How far back `of late` goes."""
STEP_S = 0.5
"""Looks that follow one another faster than this count as one."""


class Lately:
    """The last seconds of a histogram; everything since the start until so much time has passed."""

    def __init__(self, histogram: Histogram, clock: Clock) -> None:
        self._histogram = histogram
        self._clock = clock
        self._looks: deque[tuple[float, list[int], float]] = deque()

    def look(self) -> None:
        """Remember what the histogram has now."""
        now = self._clock.monotonic()
        if self._looks and now - self._looks[-1][0] < STEP_S / 2:
            return
        self._looks.append((now, list(self._histogram.counts), self._histogram.seconds))
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Keep one look that is as old as the window, and all that are younger."""
        while len(self._looks) > 1 and now - self._looks[1][0] >= WINDOW_S:
            self._looks.popleft()

    def times(self, *shares: float) -> tuple[int, float, list[float]]:
        """How many entries there were, what they took on average, and what shares of them took at most."""
        counts, seconds = self._histogram.counts, self._histogram.seconds
        self._forget(self._clock.monotonic())
        if self._looks:
            _, before, earlier_s = self._looks[0]
            counts = [mine - earlier for mine, earlier in zip(counts, before, strict=True)]
            seconds -= earlier_s
        count = sum(counts)
        return count, seconds / count if count else 0.0, [find_share(counts, share) for share in shares]
