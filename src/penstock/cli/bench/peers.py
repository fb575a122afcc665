"""The brokers a bench starts and stops: Penstock itself and its peers.

Each listens on a free loopback port, keeps nothing on disk and is pinned to one core, so the figures
are per core whatever a broker could do with more.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from penstock import __version__
from penstock.cli.bench.packages import require
from penstock.cli.bench.problems import BenchError, WrongOption
from penstock.cli.bench.targets import LOOPBACK, Target, accepts, free_port

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0

MOSQUITTO_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 100
log_type error
"""

NATS_CONFIG = """\
listen: 127.0.0.1:{port}
max_pending: 256MB
write_deadline: "20s"
"""

REDIS_CONFIG = """\
port {port}
bind 127.0.0.1
save ""
appendonly no
maxclients 15000
client-output-buffer-limit pubsub 0 0 0
"""


class Recipe(Struct, frozen=True):
    """How to start one kind of broker."""

    name: str
    scheme: str
    command: Callable[[str, int, Path], list[str]]
    """From the program's path, a port and a configuration file to a command line."""
    version: Callable[[str], str]
    program: str
    packages: tuple[str, ...] = ()
    config: str = ""
    environment: tuple[tuple[str, str], ...] = ()


def _first_line(*arguments: str) -> Callable[[str], str]:
    def ask(program: str) -> str:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=10, check=False)
        line = (done.stdout or done.stderr).partition("\n")[0]
        return line.partition(" sha=")[0].strip()

    return ask


PENSTOCK = Recipe(
    name="penstock",
    scheme="mqtt",
    program=sys.executable,
    command=lambda program, port, _: [program, "-m", "penstock", "serve", "--mqtt-port", str(port)],
    version=lambda _: f"penstock {__version__}",
)

PEERS: dict[str, Recipe] = {
    "mosquitto": Recipe(
        name="mosquitto",
        scheme="mqtt",
        program="mosquitto",
        packages=("mosquitto",),
        config=MOSQUITTO_CONFIG,
        command=lambda program, _, config: [program, "-c", str(config)],
        version=_first_line("-h"),
    ),
    "nats": Recipe(
        name="nats",
        scheme="nats",
        program="nats-server",
        packages=("nats-server",),
        config=NATS_CONFIG,
        command=lambda program, _, config: [program, "-c", str(config)],
        version=_first_line("--version"),
        environment=(("GOMAXPROCS", "1"),),
    ),
    "redis": Recipe(
        name="redis",
        scheme="redis",
        program="redis-server",
        packages=("redis-server",),
        config=REDIS_CONFIG,
        command=lambda program, _, config: [program, str(config)],
        version=_first_line("--version"),
    ),
}


class Contender(Protocol):
    """A broker in the bench, whoever started it."""

    @property
    def target(self) -> Target: ...
    @property
    def version(self) -> str: ...
    def restart(self) -> None: ...  # does nothing for a broker that is not ours


class Standing:
    """A broker that was already running, given by --target."""

    version = "given by --target"

    def __init__(self, target: Target) -> None:
        self.target = target

    def restart(self) -> None:
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
        """Start on a free port and come back when it accepts connections."""
        port = free_port()
        recipe = self._recipe
        config, log = self._folder / f"{recipe.name}.conf", self._folder / f"{recipe.name}.log"
        config.write_text(recipe.config.format(port=port))
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


def choose_peers(names: str) -> list[Recipe]:
    """The peers of a comma list; `none` and nothing are the empty list."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if wanted == ["none"]:
        return []
    unknown = [name for name in wanted if name not in PEERS]
    if unknown:
        raise WrongOption(f"unknown peer {', '.join(unknown)}; known are {', '.join(PEERS)}, none")
    return [PEERS[name] for name in dict.fromkeys(wanted)]


def make_broker(recipe: Recipe, folder: Path, cpu: int, say: Callable[[str], None]) -> Broker:
    """A broker that is ready to start, its program installed where that is possible."""
    return Broker(recipe, require(recipe.program, recipe.packages, say), folder, cpu)
