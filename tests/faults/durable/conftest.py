"""What all faults of a durable server are made with."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.durable.disk_shim import build_shim
from tests.faults.durable.homes import MakeHome, homes_below
from tests.support.fork_server import ForkServer


@pytest.fixture
async def make_home(tmp_path: Path, fork_server: ForkServer | None) -> AsyncIterator[MakeHome]:
    """Makes data directories that servers live on, and lets no server outlive its test."""
    async for make in homes_below(tmp_path, fork_server):
        yield make


@pytest.fixture(autouse=True)
def no_word_of_lost_connections(caplog: pytest.LogCaptureFixture) -> None:
    """Clients write to servers that are gone; the loop need not mention it each time."""
    caplog.set_level(logging.ERROR, "asyncio")


@pytest.fixture(scope="session")
def disk_shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Library to preload into servers whose disk is to be slow, or to lose its power."""
    return build_shim(tmp_path_factory.getbasetemp())
