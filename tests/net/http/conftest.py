"""What the stories of the HTTP listener share. Each is told on both event loops."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop

from tests.net.http.serving import House


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """A listener that is still to be opened; whatever peers did, the loop has nothing to complain about."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    house = House()
    yield house
    await house.close()
    assert complaints == []
