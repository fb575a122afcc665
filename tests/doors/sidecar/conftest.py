"""What the stories of the sidecar door share: servers, and a client of one."""

from collections.abc import AsyncIterator

import pytest

from penstock.app import Server
from tests.doors.sidecar.calling import Client
from tests.doors.sidecar.serving import Start


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts servers; all are stopped after the test."""
    start = Start()
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
