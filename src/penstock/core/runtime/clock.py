"""Clock and scheduler ports: core never reads the operating system's clock itself.

Wall time stamps messages. Monotonic time decides expiry, keep alive and timeouts, so a jumping clock neither
ends a session nor loses a message.
"""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one for people, one for deadlines."""

    def wall_us(self) -> int:
        """Microseconds since 1970, UTC. It may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start. It never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    monotonic = staticmethod(time.monotonic)


class Handle(Protocol):
    """Something scheduled that can be called off."""

    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """When to run what: an event loop, or a test that turns the handle itself."""

    def call_soon(self, callback: Callable[[], None], /) -> Handle: ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Handle: ...
