"""Fixtures of the MQTT door."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from tests.doors.fixtures import start
from tests.doors.mqtt.peers import Peers
from tests.support.servers import RunningServer

__all__ = ["name", "peers", "start"]


@pytest.fixture
async def peers(server: RunningServer) -> AsyncIterator[Peers]:
    """Clients of the shared server, unless given another port."""
    peers = Peers(server.port, hears_words=False)
    yield peers
    await peers.close()


@pytest.fixture
def name() -> str:
    """A unique name: for clients, and for topics."""
    return uuid4().hex
