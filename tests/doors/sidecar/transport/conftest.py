"""What the stories of the transport share. Each is told on both event loops, but those that take seconds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

import pytest
import uvloop

from tests.doors.sidecar.transport.serving import Serving


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    both = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"uvloop": uvloop.new_event_loop} if item.path.stem == "test_patience" else both


class StartServing(Protocol):
    """Opens a door with settings of its own, on a free port."""

    async def __call__(self, **options: Any) -> Serving: ...


@pytest.fixture
async def complaints() -> AsyncIterator[None]:
    """Whatever clients did, the loop has nothing to complain about."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    yield
    assert complaints == []


@pytest.fixture
async def start(complaints: None) -> AsyncIterator[StartServing]:
    """Opens doors; those that a test leaves open are closed."""
    running: list[Serving] = []

    async def start_one(
        access: Any = None, certificates: Any = None, address_limits: Any = None, **settings: Any
    ) -> Serving:
        serving = Serving(settings, access=access, certificates=certificates, address_limits=address_limits)
        await serving.door.open()
        running.append(serving)
        return serving

    yield start_one
    for serving in running:
        await serving.close()


@pytest.fixture
async def serving(start: StartServing) -> Serving:
    """A door with settings as they are by default."""
    return await start()
