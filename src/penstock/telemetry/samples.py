"""Samplers: lag and stalls of the event loop, recent times of a histogram, and resources of the process."""

import asyncio
import resource
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from penstock.common.histogram import Histogram, bucket_of, find_share
from penstock.core.runtime.clock import Clock

LAG_INTERVAL_S = 0.5
STALL_INTERVAL_S = 0.005
"""Interval of the timer that notices stalls while the loop is busy; a stall is measured this exactly."""
IDLE_INTERVAL_S = 0.02
"""The same while it is idle."""
IDLE_CPU_S = 0.0002
"""CPU time in an interval up to which the loop was idle."""
STALL_WINDOW_S = 30.0
"""Half the time for which the longest stall is reported."""
WINDOW_S = 10.0
"""Length of the window that counts as recent."""
STEP_S = 0.5
"""Minimum distance of samples; earlier ones are skipped."""
STATM = Path("/proc/self/statm")
FILES = Path("/proc/self/fd")
PAGE_BYTES = resource.getpagesize()


class LoopLag:
    """Event loop lag, measured twice a second from `start` to `stop`."""

    def __init__(self) -> None:
        self.seconds = Histogram()
        self.on_sample: Callable[[], None] = lambda: None  # for others that sample at this interval
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start measuring."""
        self._wait(loop)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(LAG_INTERVAL_S, self._measure, loop, time.monotonic() + LAG_INTERVAL_S)

    def _measure(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        late_s = max(time.monotonic() - due, 0.0)
        self.seconds.add(bucket_of(late_s), late_s)
        self.on_sample()
        self._wait(loop)


class LoopStall:
    """Longest turn of the event loop, in CPU time, from `start` to `stop`.

    A timer that is due every few milliseconds runs late while one turn takes long. Its delay counts as far as
    the loop's thread has used the processor: a machine that is busy with others stalls nothing here.
    """

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._interval_s = STALL_INTERVAL_S
        self._cpu_s = 0.0
        self._longest_s = self._longest_before_s = 0.0
        self._window_ends_at = 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start measuring."""
        self._cpu_s = time.thread_time()
        self._wait(loop)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def recent_s(self) -> float:
        """Longest turn of the last 30 to 60 seconds."""
        self._turn_window(time.monotonic())
        return max(self._longest_s, self._longest_before_s)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        due = time.monotonic() + self._interval_s
        self._timer = loop.call_later(self._interval_s, self._measure, loop, due)

    def _measure(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now, cpu_s = time.monotonic(), time.thread_time()
        used_s, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        stall_s = min(now - due, used_s)
        self._turn_window(now)
        self._longest_s = max(self._longest_s, stall_s)
        self._interval_s = IDLE_INTERVAL_S if used_s < IDLE_CPU_S else STALL_INTERVAL_S
        self._wait(loop)

    def _turn_window(self, now: float) -> None:
        if now >= self._window_ends_at:
            is_recent = now < self._window_ends_at + STALL_WINDOW_S
            self._longest_before_s = self._longest_s if is_recent else 0.0
            self._longest_s = 0.0
            self._window_ends_at = now + STALL_WINDOW_S


class RecentTimes:
    """Sliding window over a histogram, as the difference between now and some seconds ago.

    Histograms count from the start of the server, and measuring costs no more for the window. Until the
    window has passed, it contains everything since the start.
    """

    def __init__(self, histogram: Histogram, clock: Clock) -> None:
        self._histogram = histogram
        self._clock = clock
        self._samples: deque[tuple[float, list[int], float]] = deque()

    def sample(self) -> None:
        """Store the current state of the histogram."""
        now = self._clock.monotonic()
        if self._samples and now - self._samples[-1][0] < STEP_S / 2:
            return
        self._samples.append((now, list(self._histogram.counts), self._histogram.seconds))
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Keep one sample that is as old as the window, and all younger ones."""
        while len(self._samples) > 1 and now - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()

    def times(self, *quantiles: float) -> tuple[int, float, list[float]]:
        """Number of entries, their average, and their quantiles, in the window."""
        counts, seconds = self._histogram.counts, self._histogram.seconds
        self._forget(self._clock.monotonic())
        if self._samples:
            _, before, earlier_s = self._samples[0]
            counts = [mine - earlier for mine, earlier in zip(counts, before, strict=True)]
            seconds -= earlier_s
        count = sum(counts)
        return (
            count,
            seconds / count if count else 0.0,
            [find_share(counts, quantile) for quantile in quantiles],
        )


class Process(Struct, frozen=True):
    """Resources of the process; None where the operating system does not report them."""

    cpu_s: float
    max_files: int | None
    resident_bytes: int | None
    open_files: int | None


def read_process() -> Process:
    """Read the current resources of the process."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    max_files = None if files == resource.RLIM_INFINITY else files
    return Process(time.process_time(), max_files, _resident_bytes(), _open_files())


def _resident_bytes() -> int | None:
    try:
        return int(STATM.read_bytes().split()[1]) * PAGE_BYTES
    except OSError:  # no /proc
        return None


def _open_files() -> int | None:
    try:
        # Since Linux 6.2 the size of the folder is the number of files; listing very many is slow.
        return FILES.stat().st_size or sum(1 for _ in FILES.iterdir()) - 1
    except OSError:
        return None
