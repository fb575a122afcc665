"""Cooperative background work: long jobs run in steps, a few milliseconds in each turn of the loop.

However many sessions catch up or topics are refreshed at once, the loop stays free for other clients.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Generic, Protocol, TypeVar

import structlog

from penstock.core.runtime.clock import Clock, Scheduler
from penstock.errors import PenstockError

log = structlog.get_logger("penstock.background")

WORK_S = 0.004
"""Time for all background work in one turn of the loop."""

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work with a result, as a generator: it yields after each step of about a millisecond."""


class Worker(Protocol):
    """Something to be done in steps."""

    def work(self) -> None:
        """Take one step; a worker with more to do calls `ask` again."""
        ...

    def fail(self, error: PenstockError) -> None:
        """There was a mistake in a step: there will be no other."""
        ...


class Background:
    """Lets workers take their steps in the order in which they ask."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._waiting: dict[Worker, None] = {}
        self._ends_at: float | None = None  # when the work of this turn is over, if some was done in it
        self._is_working = False

    def ask(self, worker: Worker) -> None:
        """Queue a worker for a step; it runs now if it is first and the turn has time left."""
        self._waiting[worker] = None
        if not self._is_working and self._has_time:
            self._work()

    def leave(self, worker: Worker) -> None:
        """It has nothing more to do."""
        self._waiting.pop(worker, None)

    def take_step(self, worker: Worker) -> None:
        """Run one step of a worker now. An error is reported to this worker only."""
        try:
            worker.work()
        except Exception as error:  # a mistake of ours
            log.exception("step failed")
            known = error if isinstance(error, PenstockError) else PenstockError("Internal server error")
            try:
                worker.fail(known)
            except Exception:  # the failed callback may be the reason
                log.exception("failure not reported")

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


Step = Callable[[], bool]
"""One step of a job, a few milliseconds at most. Returns whether there is more."""


class BackgroundJob:
    """Job list that runs step by step, in turns with other background work."""

    def __init__(self, turns: Background, *works: Step) -> None:
        self._turns = turns
        self._works = list(works)

    def begin(self) -> None:
        """Do what the present turn has time for; the rest follows."""
        self._turns.ask(self)

    def work(self) -> None:
        """Take one step."""
        if not self._works[0]():
            del self._works[0]
        if self._works:
            self._turns.ask(self)

    def fail(self, error: PenstockError) -> None:
        """A step went wrong: its work ends there, and the next one begins."""
        log.error("work not finished", reason=str(error))
        del self._works[0]
        if self._works:
            self._turns.ask(self)


class StepQueue:
    """Queue of jobs, in order: each runs in steps, in turns with other background work."""

    def __init__(self, turns: Background) -> None:
        self._turns = turns
        self._jobs: deque[Step] = deque()
        self._is_stepping = False

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Step) -> None:
        """Queue a job; it runs at once as far as it is first and the turn has time for it."""
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._turns.ask(self)

    def work(self) -> None:
        """Take one step, unless this is within one: a job is not entered twice."""
        if not self._jobs or self._is_stepping:
            return
        self._is_stepping = True
        try:
            has_more = self._jobs[0]()
        finally:
            self._is_stepping = False
        if not has_more:
            self._jobs.popleft()
        if self._jobs:
            self._turns.ask(self)

    def fail(self, error: PenstockError) -> None:
        """A step went wrong: its job ends there, and the next one begins."""
        log.error("work not finished", reason=str(error))
        self._jobs.popleft()
        if self._jobs:
            self._turns.ask(self)

    def step_now(self) -> bool:
        """Take a step at once, whatever the turn has time for. Returns whether another can be taken."""
        if self._jobs and not self._is_stepping:
            self._turns.take_step(self)
        return bool(self._jobs) and not self._is_stepping

    def finish(self) -> None:
        """Do at once all that is left: the server is about to stop."""
        while self.step_now():
            pass


class Procedure(Generic[T]):
    """Work of a request, in turns with background work. The first step is a part of the request itself.

    Args:
        done: gets the result.
        failed: gets the error that a step raised; there is no further step.
    """

    def __init__(
        self,
        turns: Background,
        steps: Steps[T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._turns = turns
        self._steps = steps
        self._done = done
        self._failed = failed
        self.is_over = False

    def begin(self) -> None:
        """Take the first step; the rest follows."""
        self._turns.take_step(self)

    def work(self) -> None:
        """Take one step."""
        try:
            next(self._steps)
        except StopIteration as end:
            self.is_over = True
            self._done(end.value)
        except Exception as error:
            self.is_over = True
            self._failed(error)
        else:
            self._turns.ask(self)

    def fail(self, error: PenstockError) -> None:
        """The report of the end went wrong."""
        self._failed(error)

    def finish(self) -> None:
        """Do at once all that is left: the server is about to stop."""
        self._turns.leave(self)
        while not self.is_over:
            self._turns.take_step(self)
            self._turns.leave(self)
