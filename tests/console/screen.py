"""The console in a real browser, and what a user sees and does there."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webelement import WebElement

from tests.support.servers import RunningServer

TIMEOUT_S = 100.0
WIDE, NARROW = (1280, 900), (360, 740)
T = TypeVar("T")

# The first visible element that a user would call by this name: its label, its own text or its aria-label.
# An open dialog comes first, then the page, then what is around it.
BY_NAME = """
  const [kinds, name] = arguments;
  const textOf = (each) => (each.ariaLabel || each.textContent).trim();
  const begins = (label) => label.textContent.trim().startsWith(name);
  const labelled = (each) => [...(each.labels ?? [])].some(begins);
  const isIt = (each) => each.checkVisibility() && (labelled(each) || textOf(each) === name);
  const places = [...document.querySelectorAll("dialog, main, body")].sort((a, b) => rank(a) - rank(b));
  function rank(place) { return ["DIALOG", "MAIN", "BODY"].indexOf(place.tagName); }
  const found = places.flatMap((place) => [...place.querySelectorAll(kinds)]);
  return found.find(isIt) ?? null;
"""


class Screen:
    """One page of the console."""

    def __init__(self, browser: Chrome) -> None:
        self.browser = browser
        self.address = ""

    def open(self, server: RunningServer, page: str = "", size: tuple[int, int] = WIDE) -> "Screen":
        """Load the console anew at one of its pages."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.address = f"http://127.0.0.1:{server.port_of('http')}"
        self.browser.get("about:blank")
        self.browser.get(f"{self.address}/#/{page}")
        self.wait(lambda: self.texts("h1") != [""] and self.texts("h1"), "no page is shown")
        return self

    def go(self, page: str) -> None:
        """Go to another page as a link does."""
        self.run("location.hash = arguments[0]", f"#/{page}")
        name = page.split("?", maxsplit=1)[0].split("/", maxsplit=1)[0]
        self.wait(lambda: self.texts(f".page-{name}"), f"{page} is not shown")

    def run(self, body: str, *given: Any) -> Any:
        """Run a script in the page."""
        return self.browser.execute_script(body, *given)

    def texts(self, selector: str) -> list[str]:
        """Visible texts of everything that a selector finds."""
        script = """
          const found = [...document.querySelectorAll(arguments[0])].filter((each) => each.checkVisibility());
          return found.map((each) => each.innerText.trim());
        """
        return list(self.run(script, selector))

    def text(self, selector: str = "main") -> str:
        return "\n".join(self.texts(selector))

    def rows(self, caption: str) -> list[list[str]]:
        """Cells of the rows of a table."""
        script = """
          const isIt = (each) => each.caption?.textContent === arguments[0];
          const rows = [...document.querySelectorAll("table")].find(isIt)?.tBodies[0].rows ?? [];
          return [...rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()));
        """
        return list(self.run(script, caption))

    def grid(self) -> list[list[str]]:
        """Cells of the rows of a virtual list that are elements, from top to bottom."""
        script = """
          const rows = [...document.querySelectorAll(".space > .row")];
          rows.sort((a, b) => a.dataset.index - b.dataset.index);
          return rows.map((row) => [...row.children].map((cell) => cell.textContent));
        """
        return list(self.run(script))

    def card(self, label: str) -> str:
        """Figure of a card."""
        script = """
          const isIt = (each) => each.querySelector(".label").textContent.startsWith(arguments[0]);
          const card = [...document.querySelectorAll(".card")].find(isIt);
          return card?.querySelector(".value").textContent ?? "";
        """
        return str(self.run(script, label))

    def find(self, kinds: str, name: str) -> WebElement:
        """Element by the name that a user knows it by."""
        found: WebElement = self.wait(lambda: self.run(BY_NAME, kinds, name), f"there is no {kinds} {name!r}")
        return found

    def click(self, name: str) -> None:
        """Click a button or a link."""
        self.find("button, a[href]", name).click()

    def fill(self, label: str, text: str) -> WebElement:
        """Type into a field in place of its content."""
        field = self.find("input, textarea", label)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(Keys.DELETE)
        field.send_keys(text)
        return field

    def choose(self, label: str, value: str) -> None:
        """Choose an option of a list by its value."""
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))"
        self.run(script, self.find("select", label), value)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        actions = ActionChains(self.browser)
        for key in keys:
            actions.send_keys(key)
        actions.perform()

    @property
    def focused(self) -> str:
        """Name of the element that has the focus."""
        script = """
          const here = document.activeElement;
          return (here.ariaLabel || here.labels?.[0]?.textContent || here.textContent).trim();
        """
        return str(self.run(script))

    def wait(self, found: Callable[[], T | None], told: str) -> T:
        """Wait until the page shows something."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (value := found()):
            assert time.monotonic() < deadline, f"{told}: {self.text('body')}"
            time.sleep(0.03)
        return value

    def errors(self) -> list[str]:
        """Complaints of the browser's console since the last call, refused contents and requests included."""
        told = self.browser.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in told if entry["level"] == "SEVERE"]
