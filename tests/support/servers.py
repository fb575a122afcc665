"""Penstock in a process of its own, as a user starts it, and what can be seen of it from outside."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.support.fork_server import ForkServer

START_TIMEOUT_S = 60.0
"""A machine that is busy takes its time; one that ends instead of listening is noticed at once."""
STOP_TIMEOUT_S = 30.0
COMPLAINT = re.compile(r"Traceback|^\S+ (error|critical) ", re.MULTILINE)
"""What a healthy server never writes: a traceback, or an event as severe as that."""

ON_DISK = "TEST_ON_DISK"
"""Set in the environment, it gives every server of the tests a data directory."""

Settings = Mapping[str, Any]


class RunningServer:
    """A real server on loopback; `stop` also checks that it was well all the time."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self.process = process
        self._folder = folder
        self._is_told = False
        self.port = self._wait_for_port()

    def _wait_for_port(self) -> int:
        """The MQTT port, as the server tells whoever started it."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            is_over = self.process.poll() is not None
            if found := re.search(r"^Try.*? sub --port (\d+)", self.printed, re.MULTILINE | re.DOTALL):
                return int(found[1])
            if is_over:
                raise RuntimeError(f"the server ended with {self.process.returncode}: {self.logged}")
            time.sleep(0.01)
        raise RuntimeError(f"the server does not listen: {self.logged}")

    def port_of(self, scheme: str) -> int:
        """The port of an address: `mqtt`, `mqtts`, `ws`, `wss`, `http`, `https`, `grpc` or `grpcs`."""
        found = re.search(rf" {scheme}://\S+?:(\d+)(?:/\S*)?$", self.printed, re.MULTILINE)
        assert found is not None, self.printed
        return int(found[1])

    @property
    def printed(self) -> str:
        """Everything on its standard output so far."""
        return (self._folder / "stdout").read_text(encoding="utf-8")

    @property
    def logged(self) -> str:
        """Everything on its standard error so far."""
        return (self._folder / "stderr").read_text(encoding="utf-8")

    @property
    def memory_bytes(self) -> int:
        """What it holds in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    @property
    def open_files(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208 - only their number is wanted

    def terminate(self) -> None:
        """Ask it to stop, and do not wait."""
        self._is_told = True
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Stop it, if it still runs, and check that it ends well and never complained."""
        if not self._is_told and self.process.poll() is None:
            self.terminate()
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()
        assert code == 0, self.logged
        assert COMPLAINT.search(self.logged) is None, self.logged


class StartServer(Protocol):
    """Starts a server with settings and flags of its own, on a free port."""

    def __call__(
        self, settings: Settings | None = None, *flags: str, environment: Mapping[str, str] | None = None
    ) -> RunningServer: ...


def start(
    folder: Path,
    settings: Settings,
    flags: Sequence[str],
    environment: Mapping[str, str],
    forks: ForkServer | None = None,
) -> RunningServer:
    """Start a server whose settings file and output are in a folder, and wait until it listens.

    Args:
        forks: starts the server without loading Penstock again; not with variables of its own.
    """
    process = launch(folder, settings, flags, environment, forks)
    try:
        return RunningServer(process, folder)
    except BaseException:
        process.kill()
        process.wait()
        raise


def launch(
    folder: Path,
    settings: Settings,
    flags: Sequence[str],
    environment: Mapping[str, str],
    forks: ForkServer | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a server, with the arguments of `start`, and do not wait for it."""
    mqtt = {"port": 0, **settings.get("mqtt", {})}
    http = {"port": "off", **settings.get("http", {})}
    sidecar = {"port": 0, **settings.get("sidecar", {})}
    if is_on_disk():
        settings = {"data_dir": str(folder / "data"), **settings}
    file = folder / "penstock.yaml"
    file.write_text(
        yaml.safe_dump({**settings, "mqtt": mqtt, "http": http, "sidecar": sidecar}), encoding="utf-8"
    )
    return run_penstock(["serve", "--config", str(file), *flags], folder, environment, forks)


def run_penstock(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], forks: ForkServer | None = None
) -> "subprocess.Popen[bytes]":
    """Start a command of Penstock whose output is in a folder: `stdout` and `stderr`."""
    outputs = (folder / "stdout", folder / "stderr")
    if forks is not None and not environment:
        return forks.fork(words, bare_environment(), *outputs)
    return _start_fresh(words, {**bare_environment(), **environment}, *outputs)


def _start_fresh(
    words: Sequence[str], environment: Mapping[str, str], output: Path, errors: Path
) -> "subprocess.Popen[bytes]":
    with output.open("wb") as stdout, errors.open("wb") as stderr:
        command = [sys.executable, "-m", "penstock", *words]
        return subprocess.Popen(command, env=environment, stdout=stdout, stderr=stderr)


def is_on_disk() -> bool:
    """Servers have a data directory, whatever their settings say."""
    return bool(os.environ.get(ON_DISK))


def bare_environment() -> dict[str, str]:
    """The environment of the tests without any setting."""
    return {name: value for name, value in os.environ.items() if not is_setting(name)}


def is_setting(variable: str) -> bool:
    return variable.startswith("PENSTOCK_") and variable != "PENSTOCK_SOAK"
