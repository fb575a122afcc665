"""A cursor in a file, so that a process that starts again goes on where it was.

The file is replaced as a whole: it holds a cursor, or it is not there. It survives the end of the process,
however that comes; nothing is synced to disk, so that a power cut may set it back.
"""

import os
from pathlib import Path

from penstock.errors import InvalidCursor

LONGEST_CURSOR = 1_000_000


class CursorFile:
    """Where a subscription keeps how far it has come.

    ```python
    async with client.subscribe("orders/#", after=CursorFile("orders.cursor")) as messages:
        async for message in messages:
            deal_with(message)
    ```

    Args:
        path: the file; its folder has to exist. Where there is none the subscription starts with what is new.
        every_s: how often it is written while messages keep coming; it is also written when there is none.
    """

    def __init__(self, path: str | os.PathLike[str], *, every_s: float = 0.2) -> None:
        self.path = Path(path)
        self.every_s = every_s

    def __repr__(self) -> str:
        return f"CursorFile({str(self.path)!r})"

    def read(self) -> str | None:
        """The cursor; None if there is no file.

        Raises:
            InvalidCursor: there is a file, and no cursor in it.
        """
        try:
            with self.path.open(encoding="ascii") as file:
                text = file.read(LONGEST_CURSOR).strip()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            text = ""
        if not text:
            raise InvalidCursor(f"{self.path} is no file with a cursor")
        return text

    def write(self, cursor: str) -> None:
        """Put a cursor in place of the one that is there."""
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        fresh.write_text(f"{cursor}\n", encoding="ascii")
        fresh.replace(self.path)
