"""Fixtures for Spark tests: one Spark session, servers with a log, and a clock."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.spark.jvms import QUICK
from tests.spark.servers import LogServer
from tests.support.servers import StartServer, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FIRST_QUERY_S = 240
"""How long a test may take that has to start Spark first, on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests that use Spark more time."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(FIRST_QUERY_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The one Spark session of all tests, on two cores: leave its settings as they are.

    What Spark itself says is in the file `spark.log` of its folder below pytest's.
    """
    from penstock.spark.session import session  # noqa: PLC0415 - most tests do without Spark

    folder = tmp_path_factory.mktemp("spark")
    confs = {
        "spark.driver.extraJavaOptions": QUICK,
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
    }
    with session("penstock tests", "local[2]", confs, log=folder / "spark.log") as running:
        yield running


@pytest.fixture(scope="session")
def log_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServer]:
    """A real server with a log and an HTTP port; shared, so use topics and names of your own."""
    folder = tmp_path_factory.mktemp("log-server")
    running = start(folder, {"http": {"port": 0}, "data_dir": str(folder / "data")}, (), {})
    yield LogServer(running)
    running.stop()


@pytest.fixture
def lake_server(start_server: StartServer, tmp_path: Path) -> Iterator[LogServer]:
    """A real server with a log of its own, for tests that look at all of it."""
    running = start_server({"http": {"port": 0}, "data_dir": str(tmp_path / "data")})
    yield LogServer(running)
    running.stop()


@pytest.fixture
def name() -> str:
    """A name that nobody else uses: for holds, keys, and topics."""
    return uuid4().hex


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()
