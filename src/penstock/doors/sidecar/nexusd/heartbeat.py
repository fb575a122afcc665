"""A sign of life for streams on which nothing happens."""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable


class Heartbeat:
    """Looks after one stream.

    A stream says when it sends something, which moves no timer: a busy one costs nothing here.

    Args:
        interval_s: how long it may be silent; 0 for as long as it likes.
        beat: called when it has been.
    """

    __slots__ = ("_beat", "_interval_s", "_loop", "_sent_at", "_timer")

    def __init__(self, loop: AbstractEventLoop, interval_s: float, beat: Callable[[], None]) -> None:
        self._loop = loop
        self._interval_s = interval_s
        self._beat = beat
        self._sent_at = 0.0
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        """The stream has begun."""
        self.note_sent()
        if self._interval_s:
            self._look_in(self._interval_s)

    def note_sent(self) -> None:
        """The stream has just sent something."""
        self._sent_at = self._loop.time()

    def stop(self) -> None:
        """The stream is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        left_s = self._sent_at + self._interval_s - self._loop.time()
        if left_s > 0:
            self._look_in(left_s)
        else:
            self._look_in(self._interval_s)
            self._beat()
