"""What stories about the clients need: both twins, a NexusD daemon, and servers that come and go."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.client.nexusd_daemon import Daemon
from tests.client.twins import TWINS, Connect
from tests.e2e.servers import RunningServer, Settings, start
from tests.ports import free_port


@pytest.fixture(params=list(TWINS))
def connect(request: pytest.FixtureRequest) -> Connect:
    """Each twin, one after the other."""
    return TWINS[request.param]


@pytest.fixture
def address(server: RunningServer) -> str:
    """Where a server is that all share: use topics of your own."""
    return f"127.0.0.1:{server.port_of('grpc')}"


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """What is not Penstock."""
    running = Daemon()
    yield running
    running.stop()


class MortalServer:
    """A server that is killed and started again, at the same address."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder = folder
        self._settings = {**settings, "sidecar": {"port": free_port(), **settings.get("sidecar", {})}}
        self._running: RunningServer | None = None
        self.address = f"127.0.0.1:{self._settings['sidecar']['port']}"

    def start(self) -> None:
        self._running = start(self._folder, self._settings, (), {})

    def kill(self) -> None:
        if self._running is not None:
            self._running.process.kill()
            self._running.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()


@pytest.fixture
def start_mortal(tmp_path: Path) -> Iterator[Callable[..., MortalServer]]:
    """Starts servers that tests may kill."""
    servers: list[MortalServer] = []

    def start_one(**settings: object) -> MortalServer:
        folder = tmp_path / f"mortal{len(servers)}"
        folder.mkdir()
        servers.append(MortalServer(folder, settings))
        servers[-1].start()
        return servers[-1]

    yield start_one
    for server in servers:
        server.kill()
