"""Single keys of a terminal, as they are pressed."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

LEFT, RIGHT = "\x1b[D", "\x1b[C"


class Keyboard:
    """Where keys come from; from nowhere, if nobody sits there."""

    def __init__(self, file_number: int | None) -> None:
        self._file_number = file_number

    def wait(self, seconds: float) -> str | None:
        """The key that is pressed within a time, or None."""
        if self._file_number is None:
            time.sleep(seconds)
            return None
        ready, _, _ = select.select([self._file_number], [], [], seconds)
        if not ready:
            return None
        pressed = os.read(self._file_number, 16)
        if not pressed:  # the terminal is gone
            self._file_number = None
        return pressed.decode(errors="replace").replace("\x1bO", "\x1b[")  # as some send arrows


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Take keys one by one, without showing them, until the end; the terminal is then as it was."""
    if not sys.stdin.isatty():
        yield Keyboard(None)
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield Keyboard(number)
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
