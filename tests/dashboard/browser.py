"""Dashboard in a process of its own, and its pages in a real browser."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from selenium.webdriver import Chrome

from tests.support.servers import bare_environment

TIMEOUT_S = 100.0  # of a page that is drawn for the first time, on a busy machine
T = TypeVar("T")


class RunningDashboard:
    """`penstock dashboard` on a free port; `stop` also checks that it never complained."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        words = [sys.executable, "-m", "penstock", "dashboard", "--port", "0", *flags]
        environment = {**bare_environment(), "HOME": str(self.home)}
        with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
            self.process = subprocess.Popen(words, env=environment, cwd=folder, stdout=stdout, stderr=stderr)
        found = wait_for(lambda: re.search(r"is at (\S+) and", self.printed) or self.process.poll())
        assert isinstance(found, re.Match), self.complaints
        self.address = found[1]

    @property
    def printed(self) -> str:
        """Everything on its standard output so far."""
        return (self._folder / "stdout").read_text(encoding="utf-8")

    @property
    def complaints(self) -> str:
        """Everything on its standard error so far."""
        return (self._folder / "stderr").read_text(encoding="utf-8")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop it and check that it ends well."""
        self.process.send_signal(number)
        try:
            code = self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()
        assert (code, self.complaints) == (0, "")


class Shown:
    """A page of the dashboard in a browser, and what a user sees there."""

    def __init__(self, browser: Chrome) -> None:
        self.browser = browser

    def open(self, address: str) -> "Shown":
        """Go to a page and wait until it has been drawn to its end.

        Its live parts may be drawn again at any time: on a busy machine the page's program never rests.
        """
        self.browser.get(address)
        self.wait_for(lambda: self.state and self.texts(".st-key-page-end i"), "the page is not drawn")
        return self

    @property
    def state(self) -> str:
        """State of the server in the header; empty while there is none."""
        return "".join(self.texts(".server .state"))

    def run(self, body: str, *given: Any) -> Any:
        """Run a script in the page."""
        return self.browser.execute_script(body, *given)

    def texts(self, selector: str) -> list[str]:
        """What stands in everything that a selector finds."""
        found = self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".map((one) => (one.innerText ?? one.textContent).trim())",
            selector,
        )
        return list(found)

    def tile(self, key: str) -> tuple[str, str]:
        """The number of a tile, and the note below it; empty as long as there is none."""
        where = f".st-key-tile-{key}"
        found = (*self.texts(f"{where} .number"), *self.texts(f"{where} .note"))
        return found if len(found) == 2 else ("", "")

    def rows(self, key: str) -> list[list[str]]:
        """The rows of a small table."""
        found = self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".map((row) => [...row.cells].map((cell) => cell.innerText.trim()))",
            f".st-key-table-{key} tbody tr",
        )
        return list(found)

    def wait_for(self, found: Callable[[], T], told: str = "") -> T:
        """Wait until the page shows something."""
        return wait_for(found, lambda: f"{told}: {self.texts('.stMain')}")

    def errors(self) -> list[str]:
        """What the browser's console complained about since that was last asked."""
        told = self.browser.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in told if entry["level"] == "SEVERE"]

    def hosts(self) -> set[str]:
        """From where the browser has fetched something since that was last asked."""
        told = (json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance"))  # type: ignore[no-untyped-call]
        asked = [each["params"] for each in told if each["method"] == "Network.requestWillBeSent"]
        places = (urlsplit(each["request"]["url"]) for each in asked)
        return {place.netloc for place in places if place.scheme in ("http", "https", "ws", "wss")}


def wait_for(found: Callable[[], T], told: Callable[[], str] = str) -> T:
    """Wait until something is there."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (value := found()):
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)
    return value
