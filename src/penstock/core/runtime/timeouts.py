"""Timeout buckets: many waits that expire by one timer.

Waits that end in the same fiftieth of a second share a bucket, so adding and removing cost the same however
many there are. The timer is set for the first bucket, and not at all while nothing waits.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import ceil

from penstock.core.runtime.clock import Clock, Handle, Scheduler

PER_SECOND = 50
"""Buckets per second: a wait ends at most 20 ms late, and never early."""
NOT_DUE = -1
"""Bucket of an entry that does not wait."""


class Timed:
    """Entry that waits until a deadline at most."""

    __slots__ = ("bucket",)

    def __init__(self) -> None:
        self.bucket = NOT_DUE


class Timeouts:
    """All waiting entries by deadline."""

    def __init__(self, clock: Clock, scheduler: Scheduler, on_due: Callable[[Timed], None]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._on_due = on_due
        self._buckets: dict[int, dict[Timed, None]] = {}
        self._order: list[int] = []  # the numbers of all buckets, empty ones too: a heap
        self._timer: Handle | None = None
        self._timer_at = NOT_DUE
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Timed]:
        """All entries that wait now."""
        return iter([each for bucket in self._buckets.values() for each in bucket])

    def add(self, who: Timed, deadline: float) -> None:
        """Add an entry that waits until a monotonic time at most."""
        number = who.bucket = ceil(deadline * PER_SECOND)
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heappush(self._order, number)
        bucket[who] = None
        self._count += 1
        if self._timer is None or number < self._timer_at:
            self._set(number)

    def remove(self, who: Timed) -> None:
        """Remove an entry; idempotent."""
        if who.bucket != NOT_DUE:
            del self._buckets[who.bucket][who]
            who.bucket = NOT_DUE
            self._count -= 1

    def _set(self, number: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = max(number / PER_SECOND - self._clock.monotonic(), 0.0)
        self._timer_at = number
        self._timer = self._scheduler.call_later(delay, self._ring)

    def _ring(self) -> None:
        """Notify the entries that are due, then set the timer for the next."""
        self._timer = None
        now = self._clock.monotonic() * PER_SECOND
        try:
            while self._order and self._order[0] <= now:
                self._empty(self._buckets[self._order[0]])
                del self._buckets[heappop(self._order)]
        finally:
            self._skip()
            if self._order and self._timer is None:
                self._set(self._order[0])

    def _empty(self, bucket: dict[Timed, None]) -> None:
        while bucket:
            who, _ = bucket.popitem()
            who.bucket = NOT_DUE
            self._count -= 1
            self._on_due(who)

    def _skip(self) -> None:
        """Forget buckets that everyone has left."""
        while self._order and not self._buckets[self._order[0]]:
            del self._buckets[heappop(self._order)]
