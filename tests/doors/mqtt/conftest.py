"""What the stories of the MQTT door share."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from tests.doors.mqtt.peers import Peers
from tests.e2e.servers import RunningServer


@pytest.fixture
async def peers(server: RunningServer) -> AsyncIterator[Peers]:
    """Clients of the shared server, unless they are told another port."""
    peers = Peers(server.port, hears_words=False)
    yield peers
    await peers.close()


@pytest.fixture
def name() -> str:
    """A name that nobody else uses: for clients, and for topics as it is a topic."""
    return uuid4().hex
