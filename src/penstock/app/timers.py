"""Things that are done again and again, each at an interval that can change."""

from collections.abc import Callable

from penstock.core.clock import Handle, Scheduler

Action = Callable[[], None]


class Timers:
    """Repeats actions until it is stopped."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.intervals: dict[str, float] = {}
        """In seconds, by the name of what is repeated."""
        self._scheduler = scheduler
        self._next: dict[str, Handle] = {}

    def repeat(self, name: str, interval_s: float, action: Action) -> None:
        """Do something at intervals; 0 is never. What is done at this interval already goes on as it does."""
        if self.intervals.get(name) == interval_s:
            return
        self.intervals[name] = interval_s
        if name in self._next:
            self._next.pop(name).cancel()
        if interval_s:
            self._begin(name, interval_s, action)

    def _begin(self, name: str, interval_s: float, action: Action) -> None:
        def again() -> None:
            self._begin(name, interval_s, action)  # first, so that one that fails is tried again
            action()

        self._next[name] = self._scheduler.call_later(interval_s, again)

    def stop(self) -> None:
        """Repeat nothing any more."""
        for handle in self._next.values():
            handle.cancel()
