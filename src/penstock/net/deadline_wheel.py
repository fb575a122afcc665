"""Deadline wheel: one timer for the deadlines of very many connections."""

from math import ceil, floor
from typing import Protocol

import structlog

from penstock.core.runtime.clock import Clock, Scheduler

log = structlog.get_logger("penstock.doors")

LATE_S = 1.0
"""A deadline is checked at most this much late."""


class HasDeadline(Protocol):
    """An object with a deadline that moves."""

    def check_deadline(self, now: float) -> float | None:
        """Act if the deadline has passed; return the time of the next check, None for none."""
        ...


class DeadlineWheel:
    """Timer wheel with buckets of one second.

    Traffic does not move a connection between buckets: it is asked for its next deadline when its bucket is
    due, so a busy connection costs nothing. A closed one is discarded: its keep alive may be hours away.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._buckets: dict[int, set[HasDeadline]] = {}
        self._seconds: dict[HasDeadline, int] = {}  # in which of them each one is
        self._is_turning = False

    def add(self, dated: HasDeadline, when: float) -> None:
        """Check an object at a time; an earlier check stays."""
        second, known = ceil(when), self._seconds.get(dated)
        if known is not None and known <= second:
            return
        if known is not None:
            self.discard(dated)
        self._seconds[dated] = second
        self._buckets.setdefault(second, set()).add(dated)
        if not self._is_turning:
            self._is_turning = True
            self._turn_soon()

    def discard(self, dated: HasDeadline) -> None:
        """Cancel the check of an object. Idempotent."""
        second = self._seconds.pop(dated, None)
        bucket = None if second is None else self._buckets.get(second)
        if second is not None and bucket is not None:
            bucket.discard(dated)
            if not bucket:
                del self._buckets[second]

    def turn(self) -> None:
        """Check everything that is due."""
        now = self._clock.monotonic()
        for second in sorted(second for second in self._buckets if second <= now):
            for dated in self._buckets.pop(second, ()):
                if self._seconds.pop(dated, None) is not None:  # else discarded a moment ago
                    self._look_at(dated, now)
        self._is_turning = bool(self._buckets)
        if self._is_turning:
            self._turn_soon()

    def _turn_soon(self) -> None:
        """Schedule the next turn at the start of the next second."""
        now = self._clock.monotonic()
        self._scheduler.call_later(floor(now) + 1 - now, self.turn)

    def _look_at(self, dated: HasDeadline, now: float) -> None:
        try:
            again = dated.check_deadline(now)
        except Exception:  # of one connection: the others must still be checked
            log.exception("deadline not checked")
            return
        if again is not None:
            self.add(dated, max(again, floor(now) + 1))
