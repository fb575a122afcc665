"""What all faults are made with."""

from collections.abc import AsyncIterator
from random import Random

import pytest

from tests.doors.mqtt.peers import Peers
from tests.fuzz.seeds import new_dice


@pytest.fixture
def dice() -> Random:
    return new_dice()


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    """Clients of whichever server they are told."""
    peers = Peers(0)
    yield peers
    await peers.close()
