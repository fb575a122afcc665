"""Fixtures of the sidecar door: servers in this process, and a client of one."""

from collections.abc import AsyncIterator

import pytest

from penstock.app import Server
from tests.doors.fixtures import *  # noqa: F403
from tests.doors.sidecar.calling import Client


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    """A client of `server`."""
    async with Client(server) as client:
        yield client
