"""What every door has in common: how it opens and closes, and one wheel for all its deadlines."""

from math import ceil
from typing import Protocol

from msgspec import Struct

from penstock.core.clock import Clock, Scheduler


class Peer(Struct, frozen=True):
    """Who is at the other end of a connection, as far as the way in can tell."""

    host: str
    port: int
    certificate_name: str | None = None
    """The common name of a client certificate that was verified."""

    def __str__(self) -> str:
        return address(self.host, self.port)


def address(host: str, port: int) -> str:
    """Host and port as they are written together."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Door(Protocol):
    """A way in for one protocol. `open` listens, `close` stops accepting, `finish` waits for the last."""

    name: str

    async def open(self) -> None:
        """Listen, or raise `InvalidConfig` with the reason why that cannot be."""

    async def close(self) -> None: ...

    async def finish(self, timeout: float) -> None: ...

    def addresses(self) -> list[str]:
        """Where clients find it, as they would write it."""
        ...


class Dated(Protocol):
    """Something with a deadline that moves."""

    def check_deadline(self, now: float) -> float | None:
        """Act if the time has come; answer when to look again, None for never."""
        ...


class Wheel:
    """Deadlines to the second, for very many connections.

    A connection stands in the bucket of the second in which it is to be looked at. Traffic does not
    move it; it is asked again when its bucket is due. So a busy connection costs nothing here.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._buckets: dict[int, set[Dated]] = {}
        self._is_turning = False

    def add(self, dated: Dated, when: float) -> None:
        """Look at something at a time."""
        self._buckets.setdefault(ceil(when), set()).add(dated)
        if not self._is_turning:
            self._is_turning = True
            self._scheduler.call_later(1.0, self.turn)

    def turn(self) -> None:
        """Look at everything that is due."""
        now = self._clock.monotonic()
        for second in sorted(second for second in self._buckets if second <= now):
            for dated in self._buckets.pop(second):
                again = dated.check_deadline(now)
                if again is not None:
                    self._buckets.setdefault(max(ceil(again), ceil(now) + 1), set()).add(dated)
        self._is_turning = bool(self._buckets)
        if self._is_turning:
            self._scheduler.call_later(1.0, self.turn)
