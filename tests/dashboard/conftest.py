"""Browser that records requests and console errors, and running dashboards."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from shutil import which

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from tests.browser.conftest import FLAGS
from tests.dashboard.browser import RunningDashboard, Shown

StartDashboard = Callable[..., RunningDashboard]


@pytest.fixture(scope="session")
def watched_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Chromium on a small laptop."""
    program, driver = which("chromium"), which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs chromium and chromium-driver")
    options = ChromeOptions()
    options.binary_location = program
    folder = tmp_path_factory.mktemp("chromium")
    for flag in (*FLAGS, f"--user-data-dir={folder}", "--window-size=1366,768"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = Chrome(options=options, service=ChromeService(driver))
    yield running
    running.quit()


@pytest.fixture
def shown(watched_browser: Chrome) -> Iterator[Shown]:
    """Page of a dashboard, with empty request and console logs."""
    page = Shown(watched_browser)
    page.errors()
    page.hosts()
    yield page
    watched_browser.get("about:blank")


@pytest.fixture(scope="module")
def start_dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartDashboard]:
    """Starts dashboards with given flags; stops and checks them after the module."""
    with ExitStack() as running:

        def start_one(*flags: str) -> RunningDashboard:
            one = RunningDashboard(tmp_path_factory.mktemp("dashboard"), *flags)
            running.callback(one.stop)
            return one

        yield start_one
