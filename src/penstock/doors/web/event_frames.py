"""What followers of events get, as bytes: the blocks of `text/event-stream`.

A message is a block without a name, with the cursor behind it as its id: whoever loses the connection comes
back with the last id it has seen. A block that is nothing but an id moves that on without telling anybody.
"""

from msgspec import Struct, json

RETRY_MS = 1_000
"""How long a browser waits before it comes back."""
COMMENT = b":\n\n"
"""What shows that somebody is still there."""


def message_block(text: bytes) -> bytes:
    """A message, as the text of its event says it."""
    return b"id: %b\ndata: %b\n\n" % (_cursor_in(text), text)


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
