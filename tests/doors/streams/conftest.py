"""What the stories of streams share: a whole server in this process, and people who send and receive."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from uuid import uuid4

import pytest
import uvloop

from penstock.app import Server
from tests.doors.streams.people import Person
from tests.doors.web.serving import EVERYTHING, Start, client_of

Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Loops:
    """Servers run on uvloop; who has hung up is seen on either loop."""
    plain: Loops = {"asyncio": asyncio.new_event_loop} if item.path.stem == "test_hang_ups" else {}
    return {**plain, "uvloop": uvloop.new_event_loop}


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
async def person(server: Server) -> AsyncIterator[Person]:
    """Somebody at `server`."""
    async with client_of(server) as http:
        yield Person(http)


@pytest.fixture
async def stored_person(stored_server: Server) -> AsyncIterator[Person]:
    """Somebody at `stored_server`."""
    async with client_of(stored_server) as http:
        yield Person(http)


@pytest.fixture
def name() -> str:
    """The name of a stream that nobody else uses."""
    return uuid4().hex
