"""Fixtures of streams: servers in this process, and clients that send and receive."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from penstock.app import Server
from tests.doors.fixtures import *  # noqa: F403
from tests.doors.serving import client_of
from tests.doors.streams.people import Person

Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Loops:
    """Servers run on uvloop; hang-ups are tested on both loops."""
    plain: Loops = {"asyncio": asyncio.new_event_loop} if item.path.stem == "test_disconnects" else {}
    return {**plain, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def person(server: Server) -> AsyncIterator[Person]:
    """A client of `server`."""
    async with client_of(server) as http:
        yield Person(http)


@pytest.fixture
async def stored_person(stored_server: Server) -> AsyncIterator[Person]:
    """A client of `stored_server`."""
    async with client_of(stored_server) as http:
        yield Person(http)
