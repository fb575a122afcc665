"""Whether a connection is read from: a gate that is open only while nothing keeps it shut."""

import asyncio
from enum import IntFlag, auto

from penstock.doors.base import GONE


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
    STORING = auto()
    """What was done for it is not stored yet."""
    ORDER = auto()
    """What it sent waits for the answers to what it sent before."""
    TURN = auto()
    """It has sent much, and others have their turn first."""


NOTHING = Why(0)


class Gate:
    """Knows every reason not to read from one transport."""

    __slots__ = ("_reasons", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._reasons = NOTHING

    @property
    def is_shut(self) -> bool:
        """Something keeps it shut."""
        return bool(self._reasons)

    def is_shut_by(self, why: Why) -> bool:
        """Whether this is among the reasons."""
        return bool(self._reasons) and why in self._reasons

    def shut(self, why: Why) -> None:
        """Do not read until this reason is gone."""
        if not self._reasons and not self._transport.is_closing():
            self._transport.pause_reading()
        self._reasons |= why

    def open(self, why: Why) -> None:
        """This is no reason any more."""
        if not self._reasons:  # as nearly always, and flags are slow to reckon with
            return
        self._reasons &= ~why
        if not self._reasons and not self._transport.is_closing():
            self._transport.resume_reading()

    def open_wide(self) -> None:
        """There is no reason any more."""
        self.open(~NOTHING)


NO_GATE = Gate(GONE)
"""That of every connection that is over."""
