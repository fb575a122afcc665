"""The form of a subscriber that was restored at start and has not come back yet.

A form belongs to a connection's wire. This stand-in knows what was asked for; the door makes the real
one of it when the client returns.
"""

from collections.abc import Sequence

from msgspec import Struct

from penstock.core.ports import Form, Frame
from penstock.core.sessions import Options
from penstock.model import Run


class AwayForm(Struct, frozen=True):
    """Stands for a form until its subscriber is there; nothing is ever encoded for who is away."""

    wishes: tuple[Options, ...]
    """What was asked for; several where filters overlap."""
    is_retained: bool = False

    limit_bytes = 0

    @property
    def qos(self) -> int:
        return max(options.qos for options in self.wishes)

    @property
    def no_local(self) -> bool:
        return all(options.no_local for options in self.wishes)

    @property
    def has_cursor(self) -> bool:
        return any(options.marks for options in self.wishes)

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        raise AssertionError("nobody is there to encode for")

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        raise AssertionError("nobody is there to encode for")

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        return []

    def merge(self, other: Form) -> Form:
        assert isinstance(other, AwayForm)
        return AwayForm(self.wishes + other.wishes)

    def as_retained(self) -> Form:
        return AwayForm(self.wishes, is_retained=True)
