"""What every door has in common: how it opens and closes, and one wheel for all its deadlines."""

import asyncio
from math import ceil, floor
from typing import Protocol, cast

import structlog
from msgspec import Struct

from penstock.core.clock import Clock, Scheduler

log = structlog.get_logger("penstock.doors")

LATE_S = 1.0
"""How much later than it asked for something is looked at, at most."""


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
    move it; it is asked again when its bucket is due. So a busy connection costs nothing here. One that
    is gone is discarded: its keep alive may be hours away, and nothing of it should wait for that.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._buckets: dict[int, set[Dated]] = {}
        self._seconds: dict[Dated, int] = {}  # in which of them each one is
        self._is_turning = False

    def add(self, dated: Dated, when: float) -> None:
        """Look at something at a time, or earlier, if that was to be done anyway."""
        second, known = ceil(when), self._seconds.get(dated)
        if known is not None and known <= second:
            return
        if known is not None:
            self.discard(dated)
        self._seconds[dated] = second
        self._buckets.setdefault(second, set()).add(dated)
        if not self._is_turning:
            self._is_turning = True
            self._turn_soon()

    def discard(self, dated: Dated) -> None:
        """Look at something no more."""
        second = self._seconds.pop(dated, None)
        bucket = None if second is None else self._buckets.get(second)
        if second is not None and bucket is not None:
            bucket.discard(dated)
            if not bucket:
                del self._buckets[second]

    def turn(self) -> None:
        """Look at everything that is due."""
        now = self._clock.monotonic()
        for second in sorted(second for second in self._buckets if second <= now):
            for dated in self._buckets.pop(second, ()):
                if self._seconds.pop(dated, None) is not None:  # else discarded a moment ago
                    self._look_at(dated, now)
        self._is_turning = bool(self._buckets)
        if self._is_turning:
            self._turn_soon()

    def _turn_soon(self) -> None:
        """Turn when the next second begins: so nobody is looked at more than one too late."""
        now = self._clock.monotonic()
        self._scheduler.call_later(floor(now) + 1 - now, self.turn)

    def _look_at(self, dated: Dated, now: float) -> None:
        try:
            again = dated.check_deadline(now)
        except Exception:  # of one connection: the deadlines of all others go on
            log.exception("deadline not checked")
            return
        if again is not None:
            self.add(dated, max(again, floor(now) + 1))


class Gone:
    """The transport of a connection that is over: whatever it is asked, nothing happens.

    Protocols take it in `connection_lost`: a transport of TLS or WebSocket refers to its protocol, and as
    long as that refers back, only the garbage collector would find the two, hours later.
    """

    def ignore(self, *_: object) -> None:
        """Do nothing."""

    write = writelines = write_eof = close = abort = pause_reading = resume_reading = ignore

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return True

    def is_reading(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


GONE = cast("asyncio.Transport", Gone())
