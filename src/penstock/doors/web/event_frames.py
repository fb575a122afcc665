"""What followers of events get, as bytes: the blocks of `text/event-stream`.

A message is a block without a name, with the cursor behind it as its id: whoever loses the connection comes
back with the last id it has seen. A block that is nothing but an id moves that on without telling anybody.
"""

from collections.abc import Sequence

from msgspec import Struct, json

from penstock.core.ports import Form, Frame
from penstock.doors.web.event_text import EventTexts
from penstock.model import Run

RETRY_MS = 1_000
"""How long a browser waits before it comes back."""
COMMENT = b":\n\n"
"""What shows that somebody is still there."""


class EventForm:
    """Messages as blocks, the same for everyone: one object on a server, and each message encoded once."""

    __slots__ = ("_texts",)

    qos = 0
    no_local = False
    is_retained = False
    has_cursor = True
    limit_bytes = 0

    def __init__(self, texts: EventTexts) -> None:
        self._texts = texts

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages, joined."""
        texts_of = self._texts.of
        return b"".join(
            [b"id: %b\ndata: %b\n\n" % (_cursor_in(text), text) for run in runs for text in texts_of(run)]
        )

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        """Each message by itself; nothing here has a delivery number, so nothing is cut."""
        parts = [run.part(index, 1) for run in runs for index in range(run.count)]
        return [(self.encode((part,), now), b"", part) for part in parts]

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        """Nobody said what is too large."""
        return []

    def merge(self, other: Form) -> Form:
        """One copy for overlapping filters."""
        return self

    def as_retained(self) -> Form:
        """A retained value is a message like any other."""
        return self


def block(name: str, data: Struct, cursor: str | None = None) -> bytes:
    """An event of ours, with the position that it leads to if it does."""
    id_line = b"" if cursor is None else b"id: %b\n" % cursor.encode()
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), id_line, json.encode(data))


def opening(cursor: str | None) -> bytes:
    """What every answer begins with: when to come back, and from where if nothing has come by then."""
    return b"retry: %d\n" % RETRY_MS + (b"\n" if cursor is None else place(cursor))


def place(cursor: str) -> bytes:
    """The position of somebody who has everything up to it."""
    return b"id: %b\n\n" % cursor.encode()


def _cursor_in(text: bytes) -> bytes:
    """The cursor of an event, which is the last that it says."""
    return text[text.rindex(b'"', 0, -2) + 1 : -2]
