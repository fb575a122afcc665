"""Whether a connection is read from: only while nothing speaks against it."""

import asyncio
from enum import IntFlag, auto


class Why(IntFlag):
    """What keeps a gate shut."""

    HELD = auto()
    """A slow subscriber holds this publisher back."""
    ANSWERS = auto()
    """It does not read what it asked for."""
    STORING = auto()
    """Too many of its answers wait for a commit."""
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

    def shut(self, why: Why) -> None:
        """Do not read until this reason is gone."""
        if not self._reasons:
            self._transport.pause_reading()
        self._reasons |= why

    def open(self, why: Why) -> None:
        """This is no reason any more."""
        if not self._reasons:  # as nearly always, and flags are slow to reckon with
            return
        self._reasons &= ~why
        if not self._reasons:
            self._transport.resume_reading()
