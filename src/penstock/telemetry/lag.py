"""How late the loop is: the time by which something that was to happen at a moment happened after it."""

import asyncio
import time
from collections.abc import Callable

from penstock.core.latency import Histogram, bucket_of

INTERVAL_S = 0.5


class LoopLag:
    """Looks twice a second, from `start` to `stop`."""

    def __init__(self) -> None:
        self.seconds = Histogram()
        self.on_look: Callable[[], None] = lambda: None  # somebody else who looks at something as often
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to look."""
        self._wait(loop)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(INTERVAL_S, self._look, loop, time.monotonic() + INTERVAL_S)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        late_s = max(time.monotonic() - due, 0.0)
        self.seconds.add(bucket_of(late_s), late_s)
        self.on_look()
        self._wait(loop)
