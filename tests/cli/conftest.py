"""What the tests of all commands share."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.e2e.servers import RunningServer, start


@pytest.fixture(autouse=True)
def logs_put_back() -> Iterator[None]:
    """A command that sets the program's log up does so for its own test alone."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """`penstock serve` with an HTTP port; shared, so use topics and names of your own."""
    running = start(tmp_path_factory.mktemp("http-server"), {"http": {"port": 0}}, (), {})
    yield running
    running.stop()
