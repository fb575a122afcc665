"""A server with a data directory that is started, killed and started again, by the clock."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from penstock.cli.bench.brokers import pinned_to
from penstock.cli.bench.meter import Meter, Reading
from penstock.cli.bench.peers import penstock_command
from penstock.cli.bench.problems import BenchError
from penstock.cli.bench.targets import LOOPBACK, accepts, free_port
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import Connect, Version

PATIENCE_S = 120.0
PAUSE_S = 0.002
CONNACK_BYTES = 4


class Server:
    """A Penstock in a process of its own, on one core."""

    def __init__(self, folder: Path, cpu: int, *, has_http: bool = False, **settings: object) -> None:
        """Args:
        has_http: it speaks HTTP too.
        settings: of the sections, with two underscores for the dot.
        """
        self.port = self.http_port = 0
        self._has_http = has_http
        self._folder = folder
        self._cpu = cpu
        self._environment = {f"PENSTOCK_{name.upper()}": str(value) for name, value in settings.items()}
        self._environment |= {  # modules are compiled once, as in an installation, and not with every start
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start it, and tell how many seconds it took until a client was let in."""
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
        while not self._lets_in() or (self._has_http and not accepts(LOOPBACK, self.http_port)):
            if self._process.poll() is not None or time.monotonic() > began + PATIENCE_S:
                said = (self._folder / "log").read_text(errors="replace").strip()[-1000:]
                raise BenchError(f"the server did not start: {said}")
            time.sleep(PAUSE_S)
        return time.monotonic() - began

    def _lets_in(self) -> bool:
        hello = encode_packet(Connect("bench-first"), Version.V311)
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=PATIENCE_S) as connection:
                connection.sendall(hello)
                return len(connection.recv(CONNACK_BYTES, socket.MSG_WAITALL)) == CONNACK_BYTES
        except OSError:
            return False

    def read(self) -> Reading:
        """What it has used so far, and what it has in memory."""
        return Meter(self.port).read()

    def kill(self) -> None:
        """End it without a warning."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it properly."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
