"""Fixtures of doors whose tests run servers in their own process."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.app import Server
from tests.doors.serving import EVERYTHING, Start

__all__ = ["name", "server", "start", "stored_server"]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts servers; all are stopped after the test."""
    start = Start()
    yield start
    await start.stop_all()


@pytest.fixture
async def server(start: Start) -> Server:
    """A server that keeps everything in memory."""
    return await start()


@pytest.fixture
async def stored_server(start: Start, tmp_path: Path) -> Server:
    """A server with a data directory."""
    return await start(data_dir=str(tmp_path / "data"), log=EVERYTHING)


@pytest.fixture
def name() -> str:
    """A unique name: for clients, and for topics."""
    return uuid4().hex
