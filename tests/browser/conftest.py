"""One browser for all tests here; every test gets a page of its own in it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from tests.browser.pages import Page
from tests.browser.places import Place
from tests.support.fork_server import ForkServer
from tests.support.servers import RunningServer, Settings, StartServer

SCRIPT_TIMEOUT_S = 40
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # it need not be kept from a machine that may run as root
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Chromium, driven by its own driver."""
    program, driver = which("chromium"), which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs chromium and chromium-driver")
    options = ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    running = Chrome(options=options, service=ChromeService(driver))
    running.set_script_timeout(SCRIPT_TIMEOUT_S)
    yield running
    running.quit()


@pytest.fixture
def page(browser: Chrome) -> Iterator[Page]:
    """A page in a tab of its own."""
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    yield Page(browser)
    browser.close()
    browser.switch_to.window(first)


@pytest.fixture(scope="module")
def web_server(start_server: StartServer) -> RunningServer:
    """A server that keeps everything in memory; the tests of a module share it, so use topics of your own."""
    return start_server({"http": {"port": 0}})


@pytest.fixture
def place_of(tmp_path: Path, fork_server: ForkServer | None) -> Iterator[Callable[..., Place]]:
    """Makes places where servers go and come back."""
    places: list[Place] = []

    def make(settings: Settings | None = None) -> Place:
        place = Place(tmp_path / f"place-{len(places)}", settings or {}, fork_server)
        places.append(place)
        return place

    yield make
    for place in places:
        place.close()
