"""Fixtures of all tests, and how tests are spread over workers and tiers."""

import atexit
import gc
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from xdist.remote import Producer

from tests.support import guard
from tests.support.examples import SOAK_FACTOR, is_soak, load_profiles
from tests.support.fork_server import IS_SUPPORTED, ForkServer
from tests.support.servers import RunningServer, Settings, StartServer, is_setting, start
from tests.support.tiers import SYSTEM, ForeignPrograms, GroupScheduling, group_of, is_system, rank

TESTS = Path(__file__).parent
FOREIGN = ForeignPrograms()
FRESH = "e2e"
"""Folder whose servers start as users start them, since it is about whole processes."""

load_profiles()
atexit.register(gc.unfreeze)  # or duckdb reports at the end what it believes to be leaks


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the system tier when only fast tests are wanted."""
    if config.option.markexpr != "not system" or collection_path == TESTS:
        return None
    is_below = collection_path.is_relative_to(TESTS)
    return True if is_below and collection_path.relative_to(TESTS).parts[0] in SYSTEM else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the thousands of objects of the collection out of the way of the garbage collector."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Let what tests start end with their process, however that ends."""
    if guard.IS_SUPPORTED and not config.option.collectonly:
        config.add_cleanup(guard.Guard().close)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    return GroupScheduling(config, log)


@pytest.hookimpl(tryfirst=True)  # before tests are selected by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its tier, and put long groups first."""
    files: dict[Path, str] = {}
    groups: dict[pytest.Item, str] = {}
    for item in items:
        file = files.get(item.path)
        if file is None:
            file = files[item.path] = item.path.relative_to(TESTS).as_posix()
        fixtures = getattr(item, "fixturenames", ())
        groups[item] = group_of(file)
        is_marked = item.get_closest_marker("system") is not None
        if is_system(file.split("/", 1)[0], fixtures, is_marked=is_marked):
            item.add_marker("system")
    items.sort(key=lambda item: rank(groups[item]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch what fast tests start."""
    FOREIGN.test = None if item.get_closest_marker("system") else item.nodeid
    try:
        return (yield)
    finally:
        FOREIGN.test = None


@pytest.fixture(scope="session")
def scale() -> int:
    """How many times the usual amount a test should use: 1, or 10 when `make soak` runs it."""
    return SOAK_FACTOR if is_soak() else 1


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Temporary folder that all workers of a run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


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


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer | None]:
    """Process that has loaded Penstock and forks servers; None where that is not possible."""
    forks = ForkServer() if IS_SUPPORTED else None
    yield forks
    if forks is not None:
        forks.close()


@pytest.fixture(scope="module")
def start_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer | None
) -> Iterator[StartServer]:
    """Starts further servers; what a test leaves running is stopped, and checked, after its module.

    They are forked, which is quicker, but not in the folder `FRESH`.
    """
    forks = None if request.path.relative_to(TESTS).parts[0] == FRESH else fork_server
    with ExitStack() as running:

        def start_one(
            settings: Settings | None = None, *flags: str, environment: Mapping[str, str] | None = None
        ) -> RunningServer:
            one = start(tmp_path_factory.mktemp("server"), settings or {}, flags, environment or {}, forks)
            running.callback(one.stop)
            return one

        yield start_one
