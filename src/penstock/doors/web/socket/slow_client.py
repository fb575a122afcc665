"""Slow clients of `/ws`: the age of the oldest queued event.

Core closes a connection whose outbox is full. Here it is also closed when events have waited too long.
Nothing is checked before its socket is full.
"""

from collections import deque
from typing import TYPE_CHECKING

from penstock.core.runtime.clock import Handle
from penstock.core.sessions.session import Session

if TYPE_CHECKING:
    from penstock.doors.web.socket.door import SocketDoor


LOOKS = 4
"""Checks within the time that an event may wait; it may wait this fraction longer."""


class SlowClientTimer:
    """Looks after one connection whose socket is, or was, full.

    At each look the time and the newest offset are noted; an event that had been published by then has waited
    since then at least.
    """

    __slots__ = ("_door", "_looks", "_session", "_timer", "has_run_out")

    def __init__(self, door: "SocketDoor", session: Session) -> None:
        self._door = door
        self._session = session
        self._looks: deque[tuple[float, int]] = deque()  # None while it keeps up
        self._timer: Handle | None = None
        self.has_run_out = False

    def on_full(self) -> None:
        """The socket takes nothing more."""
        if not self._looks:
            self._note_look()
            if self._timer is None:
                self._look_soon()

    def on_free(self) -> None:
        """It takes something again, and core has just used that."""
        if self._session.is_flowing:
            self._looks.clear()

    def stop(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_soon(self) -> None:
        self._timer = self._door.loop.call_later(self._door.slow_after_s / LOOKS, self._look)

    def _note_look(self) -> None:
        self._looks.append((self._door.clock.monotonic(), self._door.broker.history.head))

    def _look(self) -> None:
        self._timer = None
        if self._session.is_flowing:
            self._looks.clear()
        if not self._looks:
            return
        self._note_look()
        if self._age_s() < self._door.slow_after_s:
            self._look_soon()
        else:
            self.has_run_out = True
            self._door.cut_slow(self._session)

    def _age_s(self) -> float:
        """Least age of the oldest event, as seen by the checks."""
        outbox, looks = self._session.outbox, self._looks
        oldest = next(outbox.runs(), None) if outbox else None
        while looks[0][1] < (looks[-1][1] if oldest is None else oldest.offset):
            looks.popleft()
        return 0.0 if oldest is None else looks[-1][0] - looks[0][0]
