"""What all faults at the gRPC port are made with."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.durable.homes import MakeHome, homes_below


@pytest.fixture
async def make_home(tmp_path: Path) -> AsyncIterator[MakeHome]:
    """Makes data directories that servers live on, and lets no server outlive its test."""
    async for make in homes_below(tmp_path):
        yield make
