"""Fixtures: both clients, closed after a test, and a NexusD daemon."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.client.grpc.nexusd.daemon import daemon
from tests.compat.twins import Twin

__all__ = ["daemon"]

NewTwin = Callable[..., Twin]


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two clients."""
    return str(request.param)


@pytest.fixture
async def twin(kind: str) -> AsyncIterator[NewTwin]:
    """Makes clients, which are closed after the test."""
    async with AsyncExitStack() as stack:
        made: list[Twin] = []

        def new(address: str, **options: Any) -> Twin:
            made.append(Twin(kind, address, **options))
            stack.push_async_exit(made[-1])
            return made[-1]

        yield new
