"""Whether a connection is read from: a gate that is open only while nothing keeps it shut."""

import asyncio
from enum import IntFlag, auto


class Why(IntFlag):
    """What keeps a gate shut."""

    PASSWORD = auto()
    """It is still being checked."""
    HELD = auto()
    """A slow subscriber holds this publisher back."""
    RATE = auto()
    """It publishes faster than it may."""
    ANSWERS = auto()
    """It does not read what it asked for."""


NOTHING = Why(0)


class Gate:
    """Knows every reason not to read from one transport."""

    __slots__ = ("_reasons", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._reasons = NOTHING

    def is_shut_by(self, why: Why) -> bool:
        """Whether this is among the reasons."""
        return why in self._reasons

    def shut(self, why: Why) -> None:
        """Do not read until this reason is gone."""
        if not self._reasons and not self._transport.is_closing():
            self._transport.pause_reading()
        self._reasons |= why

    def open(self, why: Why) -> None:
        """This is no reason any more."""
        before, self._reasons = self._reasons, self._reasons & ~why
        if before and not self._reasons and not self._transport.is_closing():
            self._transport.resume_reading()

    def open_wide(self) -> None:
        """There is no reason any more."""
        self.open(~NOTHING)
