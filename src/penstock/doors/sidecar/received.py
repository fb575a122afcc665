"""How far a client has certainly got, whatever became of its connection.

What was on its way when a connection broke is lost, and nobody tells how much that was. But a connection that
is still there after a while has brought what was sent before: otherwise that would have been noticed.
"""

from asyncio import TimerHandle
from typing import TYPE_CHECKING

from penstock.core.sessions import Session

if TYPE_CHECKING:
    from penstock.doors.sidecar.context import Sidecar

NOTICED_S = 60.0
"""How long it takes about, at most, until a broken connection is noticed."""


class Received:
    """Looks after one session.

    Args:
        position: where it begins.
    """

    __slots__ = ("_session", "_sidecar", "_timer", "_underway", "position")

    def __init__(self, sidecar: "Sidecar", session: Session, position: int) -> None:
        self._sidecar = sidecar
        self._session = session
        self.position = position
        """Everything up to this offset has arrived."""
        self._underway = position
        self._timer: TimerHandle = sidecar.loop.call_later(NOTICED_S, self._look)

    def stop(self) -> None:
        """The stream is over."""
        self._timer.cancel()

    def _look(self) -> None:
        self.position, self._underway = self._underway, self._sidecar.broker.position_of(self._session)
        self._timer = self._sidecar.loop.call_later(NOTICED_S, self._look)
