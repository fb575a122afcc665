"""What all faults at the gRPC port are made with."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.durable.homes import MakeHome, homes_below
from tests.support.fork_server import ForkServer


@pytest.fixture
async def make_home(tmp_path: Path, fork_server: ForkServer | None) -> AsyncIterator[MakeHome]:
    """Makes data directories that servers live on, and lets no server outlive its test."""
    async for make in homes_below(tmp_path, fork_server):
        yield make
