"""Cursor stores: keep the position of a subscription, so that a restarted process resumes where it was."""

import os
from pathlib import Path
from typing import Protocol

from penstock.errors import InvalidCursor

MAX_CURSOR_LENGTH = 1_000_000

SAVE_INTERVAL_S = 0.2
"""Interval at which a cursor is saved while messages keep arriving, unless its store has another."""


class CursorStore(Protocol):
    """Place for the cursor of a subscription: a row of a database, a key in Redis, a file.

    Both methods are called on the event loop, or on its thread, and should be quick. Their errors are raised
    to the application, from the call that saves the cursor. A store may have `every_s`, as `CursorFile` has.
    """

    def load(self) -> str | None:
        """The cursor that was saved last; None if there is none: then only new messages come."""
        ...

    def save(self, cursor: str) -> None:
        """Keep a cursor in place of the last one, whole or not at all."""
        ...


class CursorFile:
    """File with the cursor of a subscription, so that a restarted process resumes where it was.

    ```python
    async with client.subscribe("orders/#", after=CursorFile("orders.cursor")) as messages:
        async for message in messages:
            process(message)
    ```

    The file is replaced atomically: it contains a whole cursor, or does not exist. It survives any end of the
    process; it is not synced to disk, so a power cut may set it back.

    Args:
        path: the file; its folder has to exist. Without a file the subscription starts with new messages.
        every_s: write interval while messages keep arriving; it is also written when none waits.
    """

    def __init__(self, path: str | os.PathLike[str], *, every_s: float = SAVE_INTERVAL_S) -> None:
        self.path = Path(path)
        self.every_s = every_s

    def __repr__(self) -> str:
        return f"CursorFile({str(self.path)!r})"

    def read(self) -> str | None:
        """The cursor; None if there is no file.

        Raises:
            InvalidCursor: the file does not contain a cursor.
        """
        try:
            with self.path.open(encoding="ascii") as file:
                text = file.read(MAX_CURSOR_LENGTH).strip()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            text = ""
        if not text:
            raise InvalidCursor(f"{self.path} contains no cursor; delete it to start with new messages")
        return text

    def load(self) -> str | None:
        """The cursor, as any `CursorStore` has it."""
        return self.read()

    def save(self, cursor: str) -> None:
        """Replace the cursor, as any `CursorStore` does."""
        self.write(cursor)

    def write(self, cursor: str) -> None:
        """Replace the cursor in the file."""
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        fresh.write_text(f"{cursor}\n", encoding="ascii")
        fresh.replace(self.path)
