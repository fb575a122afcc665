"""Clients that do not keep up: how long the oldest event has waited for one of them.

Core ends a connection whose outbox is full. Here it also ends when what waits has waited for too long. Nobody
is looked at before its socket has been full.
"""

from typing import TYPE_CHECKING

from penstock.core.clock import Handle
from penstock.core.sessions import Session

if TYPE_CHECKING:
    from penstock.doors.web.socket.door import SocketDoor


class Patience:
    """Looks after one connection whose socket is, or was, full."""

    __slots__ = ("_behind_since", "_door", "_session", "_timer", "has_run_out")

    def __init__(self, door: "SocketDoor", session: Session) -> None:
        self._door = door
        self._session = session
        self._behind_since: float | None = None  # on the monotonic clock
        self._timer: Handle | None = None
        self.has_run_out = False

    def on_full(self) -> None:
        """The socket takes nothing more."""
        if self._behind_since is None:
            self._behind_since = self._door.clock.monotonic()
            if self._timer is None:
                self._look_in(self._door.slow_after_s)

    def on_free(self) -> None:
        """It takes something again, and core has just used that."""
        if self._session.is_flowing:
            self._behind_since = None

    def stop(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, delay_s: float) -> None:
        self._timer = self._door.loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._session.is_flowing:
            self._behind_since = None
        if self._behind_since is None:
            return
        left_s = self._door.slow_after_s - self._age_s(self._behind_since)
        if left_s > 0:
            self._look_in(left_s)
        else:
            self.has_run_out = True
            self._door.cut_slow(self._session)

    def _age_s(self, behind_since: float) -> float:
        """How long the oldest has waited; what was published before it fell behind waits only since then."""
        outbox, clock = self._session.outbox, self._door.clock
        oldest = next(outbox.runs(), None) if outbox else None
        if oldest is None:
            return 0.0
        published_s = (clock.wall_us() - oldest.published_at) / 1_000_000
        return min(published_s, clock.monotonic() - behind_since)
