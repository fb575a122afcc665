"""What the tests of conformance share."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.mqtt import Version
from tests.conformance.outcomes import Outcomes
from tests.conformance.statements import MARKER
from tests.doors.mqtt.conftest import name, peers
from tests.doors.mqtt.peers import Peer, Peers
from tests.support.servers import RunningServer

__all__ = ["name", "peers"]


class Peers311(Peers):
    """Peers that speak 3.1.1 unless they are told otherwise."""

    async def open(self, version: Version = Version.V311, port: int | None = None) -> Peer:
        return await super().open(version, port)

    async def connect(self, client_id: str = "", version: Version = Version.V311, **more: Any) -> Peer:
        return await super().connect(client_id, version, **more)


@pytest.fixture
async def peers_311(server: RunningServer) -> AsyncIterator[Peers]:
    """Clients of the shared server that speak 3.1.1."""
    peers = Peers311(server.port)
    yield peers
    await peers.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--findings", type=Path, help="where to write what was found out, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}(version, *ids): the statements of a standard it proves")
    is_worker = hasattr(config, "workerinput")  # one of several processes, whose reports another one gets
    if not is_worker and (file := config.getoption("--findings", default=None)):
        config.pluginmanager.register(Outcomes(file))
