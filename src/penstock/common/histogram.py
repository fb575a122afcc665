"""Latency histogram with logarithmic buckets, four per power of two.

Adding a value costs a short search; percentiles are exact to within a fifth. `Histogram` counts since start,
`Recent` keeps only the last values.
"""

from array import array
from bisect import bisect_left
from itertools import accumulate

PER_OCTAVE = 4
"""Buckets for each power of two."""
SHORTEST = -20
"""Everything up to this power of two is in the first bucket: a microsecond."""
LONGEST = 7
"""Everything beyond this power of two is in the last bucket: two minutes."""
BUCKETS = (LONGEST - SHORTEST) * PER_OCTAVE + 2
BOUNDS: tuple[float, ...] = tuple(2.0 ** (SHORTEST + index / PER_OCTAVE) for index in range(BUCKETS - 1))
"""The longest time of each bucket but the last, which has no end."""
WINDOW = 1_000
"""Least number of entries that `Recent` keeps; it keeps at most twice as many."""


def bucket_of(seconds: float) -> int:
    """The bucket for a time."""
    return bisect_left(BOUNDS, seconds)


class Histogram:
    """All entries since start. Its sum is exact."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.seconds = 0.0

    def add(self, bucket: int, seconds: float, times: int = 1) -> None:
        """Count a time, or several equal ones, in their bucket."""
        self.counts[bucket] += times
        self.seconds += seconds * times

    @property
    def count(self) -> int:
        """Number of entries."""
        return sum(self.counts)

    def octaves(self) -> list[tuple[float, int]]:
        """Cumulative counts for each power of two seconds; the last bucket is infinity."""
        sums = list(accumulate(self.counts))
        whole = [(BOUNDS[index], sums[index]) for index in range(0, len(BOUNDS), PER_OCTAVE)]
        return [*whole, (float("inf"), sums[-1])]


class Recent:
    """The last entries of one topic: how long each took, and how many messages left together.

    Two windows follow one another; when the younger is full, the older is forgotten.
    """

    __slots__ = ("_before", "_counts", "count", "messages", "seconds")

    def __init__(self) -> None:
        self._counts = array("H", bytes(2 * BUCKETS))
        self.count = 0
        self.seconds = 0.0
        self.messages = 0
        self._before: Recent | None = None

    def add(self, bucket: int, seconds: float, messages: int) -> None:
        """Count an entry in its bucket."""
        if self.count >= WINDOW:
            self._begin_window()
        self._counts[bucket] += 1
        self.count += 1
        self.seconds += seconds
        self.messages += messages

    def _begin_window(self) -> None:
        before = self._before = Recent()
        before._counts, self._counts = self._counts, before._counts
        before.count, before.seconds, before.messages = self.count, self.seconds, self.messages
        self.count, self.seconds, self.messages = 0, 0.0, 0

    @property
    def mean_s(self) -> float:
        """Mean time of an entry."""
        return self._mean(self.seconds, self._before.seconds if self._before else 0.0)

    @property
    def mean_messages(self) -> float:
        """Mean messages of an entry."""
        return self._mean(self.messages, self._before.messages if self._before else 0)

    def _mean(self, mine: float, earlier: float) -> float:
        count = self.count + (self._before.count if self._before else 0)
        return (mine + earlier) / count if count else 0.0

    def share_s(self, *shares: float) -> list[float]:
        """Return the percentile for each share from 0 to 1."""
        counts = list(self._counts)
        if self._before is not None:
            counts = [mine + earlier for mine, earlier in zip(counts, self._before._counts, strict=True)]
        return [find_share(counts, share) for share in shares]


def find_share(counts: list[int], share: float) -> float:
    """Interpolate a percentile within its bucket."""
    left = share * sum(counts)
    for index, count in enumerate(counts):
        if count and left <= count:
            if index == len(BOUNDS):
                return BOUNDS[-1]
            lower = BOUNDS[index - 1] if index else 0.0
            return lower + (BOUNDS[index] - lower) * left / count
        left -= count
    return 0.0
