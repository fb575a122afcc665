"""Many waits that end by themselves, by one timer.

Whoever waits stands in a bucket of those who are due in the same fiftieth of a second, so to come and to go
costs the same however many wait. The timer is set for the first bucket that has somebody; while nobody waits
it is not set again.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import ceil

from penstock.core.clock import Clock, Handle, Scheduler

PER_SECOND = 50
"""Buckets for each second: nobody waits longer than 20 ms beyond its time, and nobody shorter."""
NOT_DUE = -1
"""The bucket of who does not wait."""


class Timed:
    """Somebody who waits, and no longer than to a certain time."""

    __slots__ = ("bucket",)

    def __init__(self) -> None:
        self.bucket = NOT_DUE


class Timeouts:
    """Everyone who waits, by the time when that is over."""

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
        """Everyone who waits now."""
        return iter([each for bucket in self._buckets.values() for each in bucket])

    def add(self, who: Timed, deadline: float) -> None:
        """Somebody waits, at most until a time on the monotonic clock."""
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
        """Somebody waits no more, if it did."""
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
        """Tell those whose time is over, then wait for the next."""
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
