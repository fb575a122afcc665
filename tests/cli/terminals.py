"""A command on a terminal of its own, and what it writes there."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.support.servers import bare_environment

PATIENCE_S = 30.0


class Terminal:
    """A terminal on which a command runs; everything that it wrote is kept as it is."""

    def __init__(self, process: "subprocess.Popen[bytes]", side: int) -> None:
        self.process = process
        self.written = ""
        self._side = side

    def resize(self, columns: int, rows: int) -> None:
        """Give it another size."""
        fcntl.ioctl(self._side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._side, keys.encode())

    def wait_for(self, text: str) -> str:
        """Read until a text was written, and answer all since it was last asked for something."""
        before = len(self.written)
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.written[before:]:
            if not self._read() and (self.process.poll() is not None or time.monotonic() > deadline):
                raise AssertionError(f"{text!r} was not written: {self.written[before:]!r}")
        return self.written[before:]

    def end(self) -> int:
        """Read to the end, and answer how the command ended."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read()
        while self._read():
            pass
        return self.process.wait(1)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._side], [], [], 0.1)
        if not ready:
            return False
        try:
            data = os.read(self._side, 65_536)
        except OSError:  # nobody holds the other side any more
            return False
        self.written += data.decode(errors="replace")
        return bool(data)


@contextmanager
def on_terminal(
    *words: str, columns: int = 120, rows: int = 40, environment: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """Run `penstock` with these words on a terminal."""
    ours, theirs = pty.openpty()
    variables = {**bare_environment(), "TERM": "xterm-256color", **(environment or {})}
    for name in ("COLUMNS", "LINES"):  # the size is the terminal's, not that of whoever runs the tests
        variables.pop(name, None)
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=variables,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
