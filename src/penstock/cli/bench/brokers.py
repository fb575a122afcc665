"""The brokers in a bench as running processes."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from penstock.cli.bench.building import build_program
from penstock.cli.bench.packages import require
from penstock.cli.bench.peers import Recipe, data_folder
from penstock.cli.bench.problems import BenchError
from penstock.cli.bench.targets import LOOPBACK, Target, accepts, free_port

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0
ANSWER_BYTES = 4_096


class Contender(Protocol):
    """A broker in the bench, whoever started it."""

    @property
    def target(self) -> Target: ...
    @property
    def version(self) -> str: ...
    def restart(self) -> None: ...  # does nothing for a broker that is not ours
    def stop(self) -> None: ...  # likewise


class Standing:
    """A broker that was already running, given by --target."""

    version = "given by --target"

    def __init__(self, target: Target) -> None:
        self.target = target

    def restart(self) -> None:
        """Leave it alone: it is not ours."""

    def stop(self) -> None:
        """Leave it alone: it is not ours."""


class Broker:
    """A broker process of ours; `target` changes its port with every start."""

    def __init__(self, recipe: Recipe, program: str, folder: Path, cpu: int) -> None:
        self.target = Target(recipe.name, recipe.scheme, LOOPBACK, 0)
        self.version = recipe.version(program)
        self._recipe = recipe
        self._program = program
        self._folder = folder
        self._cpu = cpu
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start on a free port, with nothing stored, and come back when it has done with starting."""
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
                start_new_session=True,  # an interrupt is for the bench, which then stops its brokers
            )
        self._await_port(self._process, port, log)
        if recipe.first_request:
            self._ask_first(port)
        self.target = Target(recipe.name, recipe.scheme, LOOPBACK, port)

    def _await_port(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not accepts(LOOPBACK, port):
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                said = log.read_text(errors="replace").strip()[-1000:]
                raise BenchError(
                    f"{self._recipe.name} did not start (exit status {process.returncode}): {said}"
                )
            time.sleep(0.02)

    def _ask_first(self, port: int) -> None:
        try:
            with socket.create_connection((LOOPBACK, port), timeout=START_TIMEOUT_S) as connection:
                connection.sendall(self._recipe.first_request)
                answer = connection.recv(ANSWER_BYTES)
        except OSError as error:
            answer = str(error).encode()
        if not answer.startswith(b"HTTP/1.1 200"):
            self.stop()
            raise BenchError(f"{self._recipe.name} does not answer as it should: {answer!r}")

    def stop(self) -> None:
        """End the process, politely first."""
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
        """A new process that has done nothing yet."""
        self.stop()
        self.start()


@contextmanager
def pinned_to(cpu: int) -> Iterator[None]:
    """Start children on one core only: a new process and all its threads inherit ours."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def make_broker(recipe: Recipe, folder: Path, cpu: int, say: Callable[[str], None]) -> Broker:
    """A broker that is ready to start, its program compiled, or installed where that is possible."""
    if recipe.source:
        program = str(build_program(say, recipe.source))
    else:
        program = require(recipe.program, recipe.packages, say, recipe.files)
    return Broker(recipe, program, folder, cpu)
