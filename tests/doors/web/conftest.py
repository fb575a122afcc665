"""What the stories of the web door share: a whole server in this process, and an HTTP client on it."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from penstock.app import Server
from tests.doors.web.serving import EVERYTHING, Start, client_of


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
async def stored_server(start: Start, tmp_path: Path) -> Server:
    """A server with a data directory."""
    return await start(data_dir=str(tmp_path / "data"), log=EVERYTHING)


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    """A client of `server`."""
    async with client_of(server) as client:
        yield client


@pytest.fixture
async def stored_http(stored_server: Server) -> AsyncIterator[httpx.AsyncClient]:
    """A client of `stored_server`."""
    async with client_of(stored_server) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name that nobody else uses: for clients, and for topics as it is a topic."""
    return uuid4().hex
