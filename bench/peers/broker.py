"""Broker processes of a bench: start on a free port, restart, stop."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from bench.errors import BenchError
from bench.load.build import build_program, require_program
from bench.peers.recipes import Recipe, data_folder
from bench.peers.target import LOOPBACK, Target, accepts, free_port

SOURCES = Path(__file__).parent
START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0
RESPONSE_BYTES = 4_096


class Contender(Protocol):
    """A broker in the bench, started by it or given by --target."""

    @property
    def target(self) -> Target: ...
    @property
    def version(self) -> str: ...
    def restart(self) -> None: ...  # does nothing for a broker given by --target
    def stop(self) -> None: ...  # likewise


class GivenBroker:
    """A running broker, given by --target; the bench never stops it."""

    version = "given by --target"

    def __init__(self, target: Target) -> None:
        self.target = target

    def restart(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class Broker:
    """A broker process of this bench; the port of `target` changes with every start."""

    def __init__(self, recipe: Recipe, program: str, folder: Path, cpu: int) -> None:
        self.target = Target(recipe.name, recipe.scheme, LOOPBACK, 0)
        self.version = recipe.version(program)
        self._recipe = recipe
        self._program = program
        self._folder = folder
        self._cpu = cpu
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start on a free port with an empty data folder, and return when it is ready."""
        port = free_port()
        recipe = self._recipe
        config, log = self._folder / f"{recipe.name}.conf", self._folder / f"{recipe.name}.log"
        data = data_folder(config)
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        config.write_text(recipe.config.format(port=port, data=data))
        command = recipe.command(self._program, port, config)
        with log.open("wb") as output, pinned_to(self._cpu):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(recipe.environment),
                start_new_session=True,  # Ctrl-C is for the bench, which then stops its brokers
            )
        self._await_port(self._process, port, log)
        if recipe.first_request:
            self._send_first_request(port)
        self.target = Target(recipe.name, recipe.scheme, LOOPBACK, port)

    def _await_port(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not accepts(LOOPBACK, port):
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                output_text = log.read_text(errors="replace").strip()[-1000:]
                raise BenchError(
                    f"{self._recipe.name} did not start (exit status {process.returncode}): {output_text}"
                )
            time.sleep(0.02)

    def _send_first_request(self, port: int) -> None:
        try:
            with socket.create_connection((LOOPBACK, port), timeout=START_TIMEOUT_S) as connection:
                connection.sendall(self._recipe.first_request)
                response = connection.recv(RESPONSE_BYTES)
        except OSError as error:
            response = str(error).encode()
        if not response.startswith(b"HTTP/1.1 200"):
            self.stop()
            raise BenchError(
                f"{self._recipe.name} did not respond with 200 to its first request: {response!r}"
            )

    def stop(self) -> None:
        """Terminate the process; kill it if it does not end in time."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Replace the process by a new one."""
        self.stop()
        self.start()


@contextmanager
def pinned_to(cpu: int) -> Iterator[None]:
    """Pin this process to one core: children started meanwhile inherit it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def make_broker(recipe: Recipe, folder: Path, cpu: int, say: Callable[[str], None]) -> Broker:
    """Prepare a broker: fetch, compile or install its program if necessary.

    Raises:
        BenchError: that is not possible here.
    """
    if recipe.build is not None:
        program = recipe.build.require(say)
    elif recipe.source:
        program = str(build_program(say, SOURCES / recipe.source))
    else:
        program = require_program(recipe.program, recipe.packages, say, recipe.files)
    return Broker(recipe, program, folder, cpu)
