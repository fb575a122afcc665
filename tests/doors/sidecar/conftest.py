"""What the stories of the sidecar door share: servers over either transport, and a client of one."""

from collections.abc import AsyncIterator

import pytest

from penstock.app import Server
from tests.doors.sidecar.calling import Client
from tests.doors.sidecar.serving import Start, Transport


@pytest.fixture(params=list(Transport))
def transport(request: pytest.FixtureRequest) -> Transport:
    """Every story is told over each."""
    return Transport(request.param)


@pytest.fixture
async def start(transport: Transport) -> AsyncIterator[Start]:
    """Starts servers; all are stopped after the test."""
    start = Start(transport)
    yield start
    await start.stop_all()


@pytest.fixture
async def server(start: Start) -> Server:
    """A server that keeps everything in memory."""
    return await start()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    """A client of `server`."""
    async with Client(server) as client:
        yield client
