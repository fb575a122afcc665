"""What every test may ask for."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.e2e.servers import RunningServer, Settings, StartServer, is_setting, start

TESTS = Path(__file__).parent
TOGETHER = {"browser", "dashboard", "pipeline"}
"""Folders whose tests share a browser or a Spark."""

# How long an example takes says more about the machine than about us. The examples are the same each time, so
# that a change is judged by what it changes; `make soak` looks for new ones.
settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="PENSTOCK_SOAK" not in os.environ,
)
settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker have all tests of a file, which may share a server, and of a folder that shares more."""
    for item in items:
        path = item.path.relative_to(TESTS)
        group = path.parts[0] if path.parts[0] in TOGETHER else str(path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def scale() -> int:
    """How many times the usual amount a test should use: 1, or 10 when `make soak` runs it."""
    return 10 if os.environ.get("PENSTOCK_SOAK") else 1


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting comes from the environment the tests happen to run in."""
    for name in list(os.environ):
        if is_setting(name):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """`penstock serve` with default settings on a free port; shared, so use topics and names of your own."""
    running = start(tmp_path_factory.mktemp("server"), {}, (), {})
    yield running
    running.stop()


@pytest.fixture(scope="module")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Starts further servers; what a test leaves running is stopped, and checked, after its module."""
    with ExitStack() as running:

        def start_one(
            settings: Settings | None = None, *flags: str, environment: Mapping[str, str] | None = None
        ) -> RunningServer:
            one = start(tmp_path_factory.mktemp("server"), settings or {}, flags, environment or {})
            running.callback(one.stop)
            return one

        yield start_one
