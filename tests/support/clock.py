"""Time that stands still until a test moves it, and a loop that turns when a test says so."""

import heapq
import time
from collections.abc import Callable

MOST_TURNS = 10_000
"""After this many turns without a rest something schedules itself for ever."""


class ManualClock:
    """Both clocks at once; `advance` moves them together, `jump` only the one for people."""

    def __init__(self, wall_us: int = 1_700_000_000_000_000, monotonic: float = 1_000.0) -> None:
        self._wall_us = wall_us
        self._monotonic = monotonic

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return self._wall_us

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, which is not zero."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._wall_us += round(seconds * 1_000_000)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock, forward or back, as an operator or a time server might."""
        self._wall_us += round(seconds * 1_000_000)


class CpuClock(ManualClock):
    """Time that passes as this thread uses the processor, so that no other program changes a measurement."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, of work and of what was skipped by `advance`."""
        return self._monotonic + time.thread_time()


class ManualHandle:
    """Something scheduled that can be called off."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        """Call it off; it may have run already."""
        self.is_cancelled = True

    def run(self) -> None:
        """Call back, unless it was called off."""
        if not self.is_cancelled:
            self.callback()


class ManualScheduler:
    """An event loop without a loop: `turn` it once, `settle` it, or let time `advance`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._soon: list[ManualHandle] = []
        self._later: list[tuple[float, int, ManualHandle]] = []
        self._number = 0

    @property
    def pending(self) -> int:
        """How many callbacks wait for the next turn."""
        return sum(not handle.is_cancelled for handle in self._soon)

    @property
    def timers(self) -> int:
        """How many callbacks wait for their time."""
        return sum(not handle.is_cancelled for _, _, handle in self._later)

    def call_soon(self, callback: Callable[[], None], /) -> ManualHandle:
        """Call back in the next turn."""
        handle = ManualHandle(callback)
        self._soon.append(handle)
        return handle

    def call_later(self, delay: float, callback: Callable[[], None], /) -> ManualHandle:
        """Call back in the first turn after a delay."""
        handle = ManualHandle(callback)
        self._number += 1
        heapq.heappush(self._later, (self._clock.monotonic() + delay, self._number, handle))
        return handle

    def turn(self) -> None:
        """One turn: whatever waits now, and whatever is due. What these schedule waits for the next."""
        while self._later and self._later[0][0] <= self._clock.monotonic():
            self._soon.append(heapq.heappop(self._later)[2])
        ready, self._soon = self._soon, []
        for handle in ready:
            handle.run()

    def longest_turn(self) -> float:
        """Turn until nothing waits any more; return the processor time of the longest turn, in seconds."""
        longest = 0.0
        for _ in range(MOST_TURNS):
            began = time.thread_time()
            self.turn()
            longest = max(longest, time.thread_time() - began)
            if not self._soon:
                return longest
        raise RuntimeError(f"still busy after {MOST_TURNS} turns")

    def settle(self) -> None:
        """Turn until nothing waits any more but timers that are not due."""
        for _ in range(MOST_TURNS):
            self.turn()
            if not self._soon and not (self._later and self._later[0][0] <= self._clock.monotonic()):
                return
        raise RuntimeError(f"still busy after {MOST_TURNS} turns")

    def advance(self, seconds: float) -> None:
        """Let time pass, stopping at every timer on the way, and settle."""
        end = self._clock.monotonic() + seconds
        self.settle()
        while self._later and self._later[0][0] <= end:
            self._clock.advance(max(self._later[0][0] - self._clock.monotonic(), 0.0))
            self.settle()
        self._clock.advance(max(end - self._clock.monotonic(), 0.0))
        self.settle()
