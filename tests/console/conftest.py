"""One browser and one server for all tests here; a test uses topics of its own."""

from collections.abc import Iterator
from shutil import which

import httpx
import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from tests.browser.conftest import FLAGS
from tests.console.screen import Screen
from tests.support.fork_server import ForkServer
from tests.support.servers import RunningServer, start


@pytest.fixture(scope="session")
def console_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Chromium that records the complaints of pages."""
    program, driver = which("chromium"), which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs chromium and chromium-driver")
    options = ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = Chrome(options=options, service=ChromeService(driver))
    yield running
    running.quit()


@pytest.fixture(scope="session")
def console_server(
    tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer | None
) -> Iterator[RunningServer]:
    """A server with a log on disk."""
    folder = tmp_path_factory.mktemp("console")
    settings = {"http": {"port": 0}, "data_dir": str(folder / "data"), "node_id": "plant-north"}
    running = start(folder, settings, (), {}, fork_server)
    yield running
    running.stop()


@pytest.fixture
def screen(console_browser: Chrome) -> Iterator[Screen]:
    """The console; after the test, nothing in it may have failed or been refused."""
    page = Screen(console_browser)
    page.errors()
    yield page
    console_browser.get("about:blank")
    assert page.errors() == []


@pytest.fixture(scope="session")
def http(console_server: RunningServer) -> Iterator[httpx.Client]:
    """Calls of the server."""
    address = f"http://127.0.0.1:{console_server.port_of('http')}"
    with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
        yield client
