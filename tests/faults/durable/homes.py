"""A data directory and the servers that live on it, one after another, however each of them ends."""

import asyncio
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol

from tests.support.fork_server import ForkServer
from tests.support.servers import (
    COMPLAINT,
    STOP_TIMEOUT_S,
    RunningServer,
    Settings,
    bare_environment,
    launch,
    run_penstock,
    start,
)

PATIENT: Settings = {
    "sessions": {"owed_messages": 1_000_000, "owed_bytes": 1 << 30},
    "outbox": {"messages": 1_000_000, "bytes": 1 << 30},
}
"""Nobody is denied a message because there are too many."""


class NobodyHome(Exception):
    """No server lives there at present."""


class Visitor(Protocol):
    """A client that belongs to a home."""

    async def cut(self) -> None: ...


class Home:
    """One data directory, and the one server on it at a time."""

    def __init__(
        self,
        folder: Path,
        settings: Settings | None = None,
        *,
        data: Path | None = None,
        environment: Mapping[str, str] | None = None,
        forks: ForkServer | None = None,
    ) -> None:
        self.folder = folder
        self.data = data or folder / "data"
        self.settings: dict[str, Any] = {**PATIENT, **(settings or {})}
        self.environment = dict(environment or {})
        self._forks = forks
        self.starts_s: list[float] = []
        """How long each start took, until clients were let in."""
        self.request_senders: list[Visitor] = []
        """Clients that come back again and again."""
        self._server: RunningServer | None = None
        self._lives = 0

    # Who lives there

    @property
    def server(self) -> RunningServer:
        """The server that runs.

        Raises:
            NobodyHome: none does.
        """
        if self._server is None:
            raise NobodyHome
        return self._server

    @property
    def port(self) -> int:
        """Where its clients find it; another one with every start."""
        return self.server.port

    @property
    def is_running(self) -> bool:
        return self._server is not None and self._server.process.poll() is None

    @property
    def logged(self) -> str:
        """What all servers have logged here, in their order."""
        files = sorted(self.folder.glob("life-*/stderr"))
        return "".join(file.read_text(encoding="utf-8", errors="replace") for file in files)

    @property
    def said_last(self) -> str:
        """What the last server has logged."""
        return (self._life(self._lives) / "stderr").read_text(encoding="utf-8", errors="replace")

    async def has_sealed(self) -> int:
        """How many batches of the log are sealed, as an operator sees it, running or not."""
        folder = Path(mkdtemp(prefix="info-", dir=self.folder))
        asked = run_penstock(["log", "info", str(self.data)], folder, {}, self._forks)
        await asyncio.to_thread(asked.wait, STOP_TIMEOUT_S)
        said = (folder / "stdout").read_bytes()
        found = re.search(rb"^sealed batches: (\d+)", said, re.MULTILINE)
        assert found is not None, said
        return int(found[1])

    # Starting

    def start(self, *flags: str) -> RunningServer:
        """Start a server and wait until it listens."""
        assert self._server is None
        began = time.monotonic()
        server = start(self._next_life(), self.settings, self._flags(flags), self.environment, self._forks)
        self.starts_s.append(time.monotonic() - began)
        self._server = server
        return server

    async def open(self, *flags: str) -> RunningServer:
        """The same while clients go on."""
        return await asyncio.to_thread(self.start, *flags)

    async def stumble(self, after_s: float) -> None:
        """Start a server and kill it so soon that it may not have come to listen."""
        assert self._server is None
        process = launch(self._next_life(), self.settings, self._flags(()), self.environment, self._forks)
        await asyncio.sleep(after_s)
        process.kill()
        process.wait()

    def _flags(self, more: tuple[str, ...]) -> tuple[str, ...]:
        return ("--data-dir", str(self.data), *more)

    def _life(self, number: int) -> Path:
        return self.folder / f"life-{number:04d}"

    def _next_life(self) -> Path:
        self._lives += 1
        self._life(self._lives).mkdir(parents=True)
        return self._life(self._lives)

    # Ending

    def kill(self) -> None:
        """End the server as a crash does: no goodbye, and nothing written after this moment."""
        server, self._server = self.server, None
        server.process.kill()
        server.process.wait()

    def stop(self) -> None:
        """End the server as its operator does, and check that it ends well."""
        server, self._server = self.server, None
        server.terminate()
        try:
            code = server.process.wait(STOP_TIMEOUT_S)
        finally:
            server.process.kill()
            server.process.wait()
        assert code == 0, server.logged

    async def close(self) -> None:
        """The same as `stop` while clients go on."""
        await asyncio.to_thread(self.stop)

    async def killed_and_back(self) -> None:
        """Kill the server, and start the next one."""
        self.kill()
        await self.open()

    async def stopped_and_back(self) -> None:
        """Stop the server, and start the next one."""
        await self.close()
        await self.open()

    async def abandon(self) -> None:
        """End whatever still runs, and every connection to it."""
        self.leave()
        for caller in self.request_senders:
            await caller.cut()

    def leave(self) -> None:
        """End whatever still runs."""
        if self._server is not None:
            server, self._server = self._server, None
            server.process.send_signal(signal.SIGCONT)
            server.process.kill()
            server.process.wait()

    def was_well(self) -> None:
        """Check that no server here ever complained."""
        found = COMPLAINT.search(self.logged)
        assert found is None, self.logged[found.start() :][:2_000]

    def copy_to(self, folder: Path) -> "Home":
        """Another home with the same data; nobody may live here meanwhile."""
        assert self._server is None
        shutil.copytree(self.data, folder / "data")
        return Home(folder, self.settings, environment=self.environment, forks=self._forks)


MakeHome = Callable[..., Home]
"""Makes a home below the folder of a test: `make_home(settings)`."""


async def homes_below(folder: Path, forks: ForkServer | None = None) -> AsyncIterator[MakeHome]:
    """A way to make homes; whatever runs in one at the end is ended."""
    homes: list[Home] = []

    def make(settings: Settings | None = None, **more: Any) -> Home:
        homes.append(Home(folder / f"home-{len(homes)}", settings, forks=forks, **more))
        return homes[-1]

    yield make
    for home in homes:
        await home.abandon()


def refusal(*flags: str, environment: Mapping[str, str] | None = None) -> str:
    """The one line with which a server says why it does not start."""
    off = ["--http-port", "off", "--sidecar-port", "off"]
    words = [sys.executable, "-m", "penstock", "serve", "--mqtt-port", "0", *off, *flags]
    ended = subprocess.run(
        words,
        env={**bare_environment(), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=STOP_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 1, ended
    assert ended.stdout == ""
    assert re.fullmatch(r"error: [^\n]+\n", ended.stderr), ended.stderr
    return ended.stderr
