"""Pings for those who are silent, so that a peer that is gone without a word is noticed.

One wheel looks after all connections of an entrance; who sends something costs nothing here.
"""

from penstock.core.clock import Clock, Scheduler
from penstock.doors.base import Dated, Wheel


class Keepalive:
    """When silent peers are pinged, and when they are given up.

    Args:
        ping_s: how long a peer may be silent before it is pinged; 0 pings nobody.
        timeout_s: how long it may then stay silent.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler, ping_s: float, timeout_s: float) -> None:
        self.ping_s = ping_s
        self.timeout_s = timeout_s
        self.now = clock.monotonic
        self._wheel = Wheel(clock, scheduler)

    def watch(self, socket: Dated) -> None:
        """Look after a connection from now on."""
        if self.ping_s:
            self._wheel.add(socket, self.now() + self.ping_s)

    def forget(self, socket: Dated) -> None:
        """Look after it no more."""
        self._wheel.discard(socket)
