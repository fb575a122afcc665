"""How clients of `/ws` want their messages: events in text frames, the same bytes for all of them.

There are two forms on a server, plain and compressed, and each is one object: core compares them by identity
and encodes a message once for everyone who has the same.
"""

from collections.abc import Callable, Sequence

from penstock.core.ports import Form, Frame
from penstock.doors.web.event_text import EventTexts
from penstock.model import Run


class SocketForm:
    """Events, one in each frame.

    Args:
        frame: makes a frame of a text.
    """

    __slots__ = ("_frame", "_texts")

    qos = 0
    no_local = False
    is_retained = False
    has_cursor = True
    limit_bytes = 0

    def __init__(self, texts: EventTexts, frame: Callable[[bytes], bytes]) -> None:
        self._texts = texts
        self._frame = frame

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages, joined."""
        frame, texts_of = self._frame, self._texts.of
        return b"".join([frame(text) for run in runs for text in texts_of(run)])

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        """Each message by itself; nothing here has a delivery number, so nothing is cut."""
        parts = [run.part(index, 1) for run in runs for index in range(run.count)]
        return [(self.encode((part,), now), b"", part) for part in parts]

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        """Nobody said what is too large."""
        return []

    def merge(self, other: Form) -> Form:
        """One copy for overlapping subscriptions, which all have the form of their connection."""
        return self

    def as_retained(self) -> Form:
        """A retained value is an event like any other."""
        return self
