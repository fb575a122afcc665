"""Deadlines of very many objects, in buckets, with one timer at most.

Objects that are due in the same fraction of a second share a bucket, so adding and cancelling cost the same
however many there are. Nothing is due early, and nothing is later than the width of a bucket.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from math import ceil, floor, inf
from typing import Generic, Protocol, TypeVar

import structlog

from penstock.core.runtime.clock import Clock, Handle, Scheduler

log = structlog.get_logger("penstock.doors")

WAITS_PER_SECOND = 50
"""Buckets for waits: each ends at most 20 ms late."""
LATE_S = 1.0
"""A moving deadline is checked at most this much late."""
SPARE_BUCKETS = 16
TAKEN_AT_ONCE = 10_000
"""Objects of one bucket that are taken at once: a million may be due in the same moment."""
WORK_S = 0.004
"""Time for objects that are due in one turn of the loop; the others have their turn in the next."""

Item = TypeVar("Item")


class Deadlines(Generic[Item]):
    """Priority queue of objects by deadline. The caller asks for those that are due.

    Args:
        per_second: number of buckets per second.
    """

    def __init__(self, per_second: int = 1) -> None:
        self._per_second = per_second
        self._numbers: dict[Item, int] = {}  # the bucket of each object
        self._buckets: dict[int, dict[Item, None]] = {}  # some are empty
        self._order: list[int] = []  # a heap of the numbers of all buckets
        self._due: dict[Item, None] = {}  # a bucket that is being taken, the last object first
        self._due_number = 0
        self._timer_at: float = -inf  # an earlier bucket sets the timer; there is none here

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Item]:
        """All objects now, in the order of their arrival."""
        return iter(list(self._numbers))

    def add(self, item: Item, when: float) -> None:
        """Add an object that is due at a monotonic time; an earlier deadline of it stays."""
        number = ceil(when * self._per_second)
        if number / self._per_second < when:  # by the rounding of the product
            number += 1
        known = self._numbers.get(item)
        if known is not None:
            if known <= number:
                return
            self.discard(item)
        bucket = self._buckets.get(number)
        if bucket is None:
            if len(self._buckets) > 2 * len(self._numbers) + SPARE_BUCKETS:
                self._drop_empty()
            bucket = self._buckets[number] = {}
            heappush(self._order, number)
        bucket[item] = None
        self._numbers[item] = number
        if number < self._timer_at:
            self._set_timer(number)

    def discard(self, item: Item) -> None:
        """Cancel the deadline of an object. Idempotent."""
        number = self._numbers.pop(item, None)
        if number is not None:
            bucket = self._buckets.get(number)
            if bucket is not None and item in bucket:
                del bucket[item]
            else:
                del self._due[item]

    def take(self, now: float) -> Item | None:
        """Remove and return an object that is due, the first one first; None if there is none."""
        while not self._due:
            if not self._order or self._order[0] / self._per_second > now:
                return None
            self._take_bucket(self._order[0])
        item, _ = self._due.popitem()
        del self._numbers[item]
        return item

    def _take_bucket(self, number: int) -> None:
        """Begin to take a bucket that is due; of a large one, a part."""
        bucket, self._due_number = self._buckets[number], number
        some = list(islice(bucket, TAKEN_AT_ONCE))
        if len(some) == len(bucket):
            heappop(self._order)
            del self._buckets[number]
        else:
            for item in some:
                del bucket[item]
        self._due = dict.fromkeys(reversed(some))

    def _first(self) -> int | None:
        """Return the number of the first bucket that is not empty."""
        if self._due:
            return self._due_number
        while self._order and not self._buckets[self._order[0]]:
            del self._buckets[heappop(self._order)]
        return self._order[0] if self._order else None

    def _drop_empty(self) -> None:
        self._buckets = {number: bucket for number, bucket in self._buckets.items() if bucket}
        self._order = list(self._buckets)
        heapify(self._order)

    def _set_timer(self, number: int) -> None:
        raise NotImplementedError


class Timeouts(Deadlines[Item]):
    """Deadlines with one timer, set for the first of them.

    Args:
        on_due: called with each object that is due, after it was removed.
    """

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        on_due: Callable[[Item], None],
        per_second: int = WAITS_PER_SECOND,
    ) -> None:
        super().__init__(per_second)
        self._clock = clock
        self._scheduler = scheduler
        self._on_due = on_due
        self._timer: Handle | None = None
        self._timer_at = inf

    def _set_timer(self, number: int) -> None:
        self._cancel_timer()
        delay = max(number / self._per_second - self._clock.monotonic(), 0.0)
        self._timer_at = number
        self._timer = self._scheduler.call_later(delay, self._on_timer)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        """Notify objects that are due, as many as the turn has time for; then set the timer for the next."""
        self._timer, self._timer_at = None, inf
        now = self._clock.monotonic()
        is_over = False
        try:
            while not is_over and (item := self.take(now)) is not None:
                self._on_due(item)
                is_over = self._clock.monotonic() - now > WORK_S
        finally:
            first = self._first()
            if first is not None and is_over and first / self._per_second <= now:
                self._cancel_timer()
                self._timer_at = first
                self._timer = self._scheduler.call_soon(self._on_timer)
            elif first is not None and first < self._timer_at:
                self._set_timer(first)


class HasDeadline(Protocol):
    """An object with a deadline that moves."""

    def check_deadline(self, now: float) -> float | None:
        """Act if the deadline has passed; return the time of the next check, None for none."""
        ...


class DeadlineChecks(Timeouts[HasDeadline]):
    """Deadlines that move: an object is asked for its next deadline when the last one is due.

    So a busy connection costs nothing. A closed one is discarded: its keep alive may be hours away.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        super().__init__(clock, scheduler, self._check, per_second=1)

    def discard(self, item: HasDeadline) -> None:
        """Cancel the checks of an object. Idempotent. The last one cancels the timer."""
        super().discard(item)
        if self._timer is not None and not self._numbers:
            self._timer.cancel()
            self._timer, self._timer_at = None, inf

    def _set_timer(self, number: int) -> None:
        """Set the timer to a whole second, never at once: what is overdue is checked together."""
        super()._set_timer(max(number, floor(self._clock.monotonic()) + 1))

    def _check(self, item: HasDeadline) -> None:
        now = self._clock.monotonic()
        try:
            again = item.check_deadline(now)
        except Exception:  # of one connection: the others must still be checked
            log.exception("deadline not checked")
            return
        if again is not None:
            self.add(item, max(again, floor(now) + 1))
