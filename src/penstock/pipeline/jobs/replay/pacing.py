"""When each slice is due: as long after the first as it was then, divided by the speed."""

import threading
import time
from collections.abc import Callable

_SECOND_US = 1_000_000


class Pace:
    """Makes whoever publishes wait for the time of each message.

    It begins with the first one it is asked about, so a replay that goes on does not make up for the pause.
    """

    def __init__(
        self,
        speed: float | None,
        stopping: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._speed = speed
        self._stopping = stopping
        self._clock = clock
        self._began: tuple[int, float] | None = None
        self.late_s = 0.0
        """How far the last one was behind its time."""

    def wait(self, when: int) -> bool:
        """Wait until a message that was published then, in microseconds, is due; False: it is to stop."""
        if self._speed is None:
            return not self._stopping.is_set()
        if self._began is None:
            self._began = when, self._clock()
        first, began = self._began
        left_s = began + (when - first) / _SECOND_US / self._speed - self._clock()
        self.late_s = max(-left_s, 0.0)
        return not (self._stopping.wait(left_s) if left_s > 0 else self._stopping.is_set())
