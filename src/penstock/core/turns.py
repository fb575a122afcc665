"""Whose turn it is to catch up: one join after the other, for some milliseconds of each turn of the loop.

However many come back at once, the loop is free for everybody else in between.
"""

from typing import Protocol

import structlog

from penstock.core.clock import Clock, Scheduler
from penstock.errors import PenstockError

log = structlog.get_logger("penstock.turns")

WORK_S = 0.004
"""How long all joins together work in one turn of the loop."""


class Worker(Protocol):
    """Something to be done in steps."""

    def work(self) -> None:
        """Take one step; whoever has another to take asks again."""
        ...

    def fail(self, error: PenstockError) -> None:
        """There was a mistake in a step: there will be no other."""
        ...


class Turns:
    """Lets workers take their steps in the order in which they ask."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._waiting: dict[Worker, None] = {}
        self._ends_at: float | None = None  # when the work of this turn is over, if some was done in it
        self._is_working = False

    def ask(self, worker: Worker) -> None:
        """Let a worker take a step: now, if nobody is before it and the turn has time left."""
        self._waiting[worker] = None
        if not self._is_working and self._has_time:
            self._work()

    def leave(self, worker: Worker) -> None:
        """It has nothing more to do."""
        self._waiting.pop(worker, None)

    def take_step(self, worker: Worker) -> None:
        """Let a worker take a step now, whoever waits; if that fails, nobody but the worker learns of it."""
        try:
            worker.work()
        except Exception as error:  # a mistake of ours
            log.exception("step failed")
            known = error if isinstance(error, PenstockError) else PenstockError("Internal server error")
            try:
                worker.fail(known)
            except Exception:  # whoever cannot be told may be the reason
                log.exception("failure not told")

    @property
    def _has_time(self) -> bool:
        return self._ends_at is None or self._clock.monotonic() < self._ends_at

    def _work(self) -> None:
        if self._ends_at is None:
            self._ends_at = self._clock.monotonic() + WORK_S
            self._scheduler.call_soon(self._begin_turn)
        self._is_working = True
        try:
            while self._waiting:
                worker = next(iter(self._waiting))
                del self._waiting[worker]
                self.take_step(worker)
                if not self._has_time:
                    break
        finally:
            self._is_working = False

    def _begin_turn(self) -> None:
        self._ends_at = None
        if self._waiting:
            self._work()
