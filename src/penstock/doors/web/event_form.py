"""How subscribers of the web door want their messages: as events, the same bytes for all who have one form.

A server has three such forms, frames, compressed frames and the blocks of a stream of events, and each is one
object: core compares them by identity and encodes a message once for everyone who has the same.
"""

from collections.abc import Callable, Sequence

from penstock.core.ports import Form, Frame
from penstock.doors.web.event_text import EventTexts
from penstock.model import Run


class EventForm:
    """Events, one after another.

    Args:
        wrap: makes of an event's text what is sent.
    """

    __slots__ = ("_texts", "_wrap")

    qos = 0
    no_local = False
    is_retained = False
    has_cursor = True
    limit_bytes = 0

    def __init__(self, texts: EventTexts, wrap: Callable[[bytes], bytes]) -> None:
        self._texts = texts
        self._wrap = wrap

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages, joined."""
        wrap, texts_of = self._wrap, self._texts.of
        return b"".join([wrap(text) for run in runs for text in texts_of(run)])

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        """Each message by itself; nothing here has a delivery number, so nothing is cut."""
        parts = [run.part(index, 1) for run in runs for index in range(run.count)]
        return [(self.encode((part,), now), b"", part) for part in parts]

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        """Nobody said what is too large."""
        return []

    def merge(self, other: Form) -> Form:
        """One copy for overlapping filters, which all have the form of their connection."""
        return self

    def as_retained(self) -> Form:
        """A retained value is an event like any other."""
        return self
