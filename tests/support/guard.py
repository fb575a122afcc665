"""Guard of a test run: ends every process that tests started when the run is over, also after kill -9.

The run is marked by an environment variable, which all processes below it inherit: servers, JVMs, browsers. A
process of its own waits for the end of the run, and kills what still has the mark.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

IS_SUPPORTED = sys.platform == "linux"
MARK = "TEST_RUN"
"""Environment variable with the name of the run."""


class Guard:
    """Process that outlives the test run for a moment; ended with `close`, or by the end of this process."""

    def __init__(self) -> None:
        os.environ[MARK] = mark = uuid4().hex
        unmarked = {name: value for name, value in os.environ.items() if name != MARK}
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-P", __file__, mark],  # -P: the modules here hide others
            env=unmarked,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """Kill what the run has left, and wait until that is done."""
        os.environ.pop(MARK, None)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def kill_marked(mark: str, spared: int) -> None:
    """Kill all processes of a run but one, which is the run itself."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if wanted in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != spared:
                os.kill(int(folder.name), signal.SIGKILL)


def _main() -> None:
    run = os.getppid()
    sys.stdin.buffer.read()  # ends with the run, or when it closes the pipe
    kill_marked(sys.argv[1], run)


if __name__ == "__main__":
    _main()
