"""Read pause: a connection is read from only while no reason speaks against it.

Reasons are bits of an integer: operations on Python's flags are several times slower.
"""

import asyncio

from penstock.net.transport import CLOSED_TRANSPORT

PASSWORD_CHECK = 1
"""The password is still being checked."""
BACKPRESSURE = 2
"""A slow subscriber blocks this publisher."""
RATE_LIMIT = 4
"""It publishes faster than it may."""
UNREAD_RESPONSES = 8
"""It does not read the responses to its requests."""
COMMIT = 16
"""The effects of its requests are not committed yet."""
ORDER = 32
"""Its next request waits for the responses to earlier ones."""
TURN = 64
"""It has used its share of this turn of the loop."""
PIPELINE = 128
"""Too many pipelined requests wait for their responses."""
BODY = 256
"""The application has not read what has arrived of a body."""
ALL_REASONS = (
    PASSWORD_CHECK,
    BACKPRESSURE,
    RATE_LIMIT,
    UNREAD_RESPONSES,
    COMMIT,
    ORDER,
    TURN,
    PIPELINE,
    BODY,
)


class ReadPause:
    """The reasons not to read from one transport."""

    __slots__ = ("_reasons", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._reasons = 0

    @property
    def is_paused(self) -> bool:
        """At least one reason is set."""
        return bool(self._reasons)

    def is_paused_by(self, reason: int) -> bool:
        """True if this reason is set."""
        return bool(self._reasons & reason)

    def pause(self, reason: int) -> None:
        """Stop reading until this reason is cleared. Idempotent."""
        if not self._reasons and not self._transport.is_closing():
            self._transport.pause_reading()
        self._reasons |= reason

    def resume(self, reason: int) -> None:
        """Clear a reason, or several; reading resumes with the last one. Idempotent."""
        if not self._reasons:
            return
        self._reasons &= ~reason
        if not self._reasons and not self._transport.is_closing():
            self._transport.resume_reading()

    def resume_all(self) -> None:
        """Clear every reason."""
        self.resume(self._reasons)


NO_PAUSE = ReadPause(CLOSED_TRANSPORT)
"""Shared by all closed connections."""
