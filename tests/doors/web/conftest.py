"""Fixtures of the web door: servers in this process, and HTTP clients of them."""

from collections.abc import AsyncIterator

import httpx
import pytest

from penstock.app import Server
from tests.doors.fixtures import *  # noqa: F403
from tests.doors.serving import client_of


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
