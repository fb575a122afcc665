"""What the tests of all commands share."""

from collections.abc import Iterator

import pytest

from tests.support.logging import logging_put_back
from tests.support.servers import RunningServer, start

__all__ = ["http_server", "logging_put_back"]


@pytest.fixture(scope="session")
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """`penstock serve` with an HTTP port; shared, so use topics and names of your own."""
    running = start(tmp_path_factory.mktemp("http-server"), {"http": {"port": 0}}, (), {})
    yield running
    running.stop()
