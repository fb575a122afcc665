"""What the stories of WebSocket share. Each is told on both event loops."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop

from tests.net.websocket.message_peers import MessageHall
from tests.net.websocket.peers import Hall


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def complaints() -> AsyncIterator[None]:
    """Whatever peers did, the loop has nothing to complain about."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    yield
    assert complaints == []


@pytest.fixture
async def hall(complaints: None) -> AsyncIterator[Hall]:
    """Listens where a test tells it to, for streams of bytes."""
    hall = Hall()
    yield hall
    await hall.close()


@pytest.fixture
async def forum(complaints: None) -> AsyncIterator[MessageHall]:
    """Listens where a test tells it to, for messages."""
    forum = MessageHall()
    yield forum
    await forum.close()
