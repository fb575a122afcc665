"""Fixtures of the gRPC client: both twins, a NexusD daemon, servers that tests may kill."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.client.grpc.nexusd.daemon import daemon
from tests.client.grpc.twins import TWINS, Connect
from tests.support.fork_server import ForkServer
from tests.support.ports import free_port
from tests.support.servers import RunningServer, Settings, start

__all__ = ["daemon"]


@pytest.fixture(params=list(TWINS))
def connect(request: pytest.FixtureRequest) -> Connect:
    """`connect` of each twin."""
    return TWINS[request.param]


@pytest.fixture
def address(server: RunningServer) -> str:
    """gRPC address of the shared server; use topics of your own."""
    return f"127.0.0.1:{server.port_of('grpc')}"


class MortalServer:
    """Server that can be killed and restarted at the same address."""

    def __init__(self, folder: Path, settings: Settings, forks: ForkServer | None) -> None:
        self._folder = folder
        self._forks = forks
        self._settings = {**settings, "sidecar": {"port": free_port(), **settings.get("sidecar", {})}}
        self._running: RunningServer | None = None
        self.address = f"127.0.0.1:{self._settings['sidecar']['port']}"

    def start(self) -> None:
        self._running = start(self._folder, self._settings, (), {}, self._forks)

    def kill(self) -> None:
        if self._running is not None:
            self._running.process.kill()
            self._running.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()


@pytest.fixture
def start_mortal(tmp_path: Path, fork_server: ForkServer | None) -> Iterator[Callable[..., MortalServer]]:
    """Starts servers that tests may kill."""
    servers: list[MortalServer] = []

    def start_one(**settings: object) -> MortalServer:
        folder = tmp_path / f"mortal{len(servers)}"
        folder.mkdir()
        servers.append(MortalServer(folder, settings, fork_server))
        servers[-1].start()
        return servers[-1]

    yield start_one
    for server in servers:
        server.kill()
