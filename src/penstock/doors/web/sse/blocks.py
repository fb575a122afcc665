"""Blocks of `text/event-stream`.

A message is a block without a name, with its cursor as id: a client that reconnects sends the last id it
has seen. A block with nothing but an id moves that on without an event.
"""

from msgspec import Struct, json

RETRY_MS = 1_000
"""Time that a browser waits before it reconnects."""
COMMENT = b":\n\n"
"""Heartbeat."""


def message_block(text: bytes) -> bytes:
    """A message, as the text of its event says it."""
    return b"id: %b\ndata: %b\n\n" % (_cursor_in(text), text)


def block(name: str, data: Struct, cursor: str | None = None) -> bytes:
    """Encode an event of the server, with its position if it has one."""
    id_line = b"" if cursor is None else b"id: %b\n" % cursor.encode()
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), id_line, json.encode(data))


def opening(cursor: str | None) -> bytes:
    """Beginning of every response: retry time, and the initial position."""
    return b"retry: %d\n" % RETRY_MS + (b"\n" if cursor is None else place(cursor))


def place(cursor: str) -> bytes:
    """Encode the position of a client that is up to date."""
    return b"id: %b\n\n" % cursor.encode()


def _cursor_in(text: bytes) -> bytes:
    """The cursor of an event, which is the last that it says."""
    return text[text.rindex(b'"', 0, -2) + 1 : -2]
