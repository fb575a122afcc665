"""Server of a trial: a Penstock with a data directory that is started, killed and restarted."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from bench.errors import BenchError
from bench.load.meter import Meter, Reading, listeners
from bench.peers.broker import pinned_to
from bench.peers.recipes import penstock_command
from bench.peers.target import LOOPBACK, accepts, free_port
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import Connect, Version

TIMEOUT_S = 120.0
PAUSE_S = 0.002
CONNACK_BYTES = 4


class Site(Struct, frozen=True):
    """Conditions of a trial: its folder, cores and scale."""

    folder: Path
    """On a real disk, and empty."""
    server_cpu: int
    client_cpu: int
    scale: float
    """Factor for the full counts."""
    say: Callable[[str], None]

    def count(self, full: int) -> int:
        """Scale a full count; at least 1."""
        return max(round(full * self.scale), 1)


class Server:
    """A Penstock process, pinned to one core."""

    def __init__(self, folder: Path, cpu: int, *, has_http: bool = False, **settings: object) -> None:
        """Args:
        has_http: also open an HTTP port.
        settings: by section and name, with two underscores for the dot.
        """
        self.port = self.http_port = 0
        self._has_http = has_http
        self._folder = folder
        self._cpu = cpu
        self._environment = {f"PENSTOCK_{name.upper()}": str(value) for name, value in settings.items()}
        self._environment |= {  # modules are compiled once, as in an installation, not at every start
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start the server; returns the seconds until the first CONNACK."""
        self.port = free_port()
        command = [*penstock_command(sys.executable, self.port), "--data-dir", str(self._folder / "data")]
        if self._has_http:
            self.http_port = free_port()
            command[command.index("--http-port") + 1] = str(self.http_port)
        with (self._folder / "log").open("wb") as output, pinned_to(self._cpu):
            began = time.monotonic()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | self._environment,
                start_new_session=True,
            )
        while not self._accepts_client() or (self._has_http and not accepts(LOOPBACK, self.http_port)):
            if self._process.poll() is not None or time.monotonic() > began + TIMEOUT_S:
                output_text = (self._folder / "log").read_text(errors="replace").strip()[-1000:]
                raise BenchError(f"the server did not start: {output_text}")
            time.sleep(PAUSE_S)
        return time.monotonic() - began

    def _accepts_client(self) -> bool:
        hello = encode_packet(Connect("bench-first"), Version.V311)
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=TIMEOUT_S) as connection:
                connection.sendall(hello)
                return len(connection.recv(CONNACK_BYTES, socket.MSG_WAITALL)) == CONNACK_BYTES
        except OSError:
            return False

    @property
    def is_alone(self) -> bool:
        """No other process listens on its port, which was free a moment before the start."""
        return self._process is not None and listeners(self.port) == [self._process.pid]

    def read(self) -> Reading:
        """Read its CPU time and memory."""
        return Meter(self.port).read()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGTERM and wait."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(TIMEOUT_S)
            finally:
                process.kill()
                _wait_for_group(process.pid)


def _wait_for_group(pid: int) -> None:
    """Kill the rest of a process group, and wait for its end: a child may still write into the folder."""
    deadline = time.monotonic() + TIMEOUT_S
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(pid, signal.SIGKILL)
            time.sleep(PAUSE_S)
