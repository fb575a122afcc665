"""A real browser with a page of the server in it, and what tests do there.

What a test runs in the page is the body of an async function, and its result or error comes back. A page
keeps what it gets in boxes: `take` answers when there is as much as was asked for, so nobody sleeps.
"""

from typing import Any

from selenium.common import TimeoutException
from selenium.webdriver import Chrome

from tests.support.servers import RunningServer

HELPERS = """
  window.Box = class {
    items = [];
    #changed = () => {};
    put = (item) => { this.items.push(item); this.#changed(); };
    async take(count) {
      while (this.items.length < count) await new Promise((resolve) => { this.#changed = resolve; });
      return this.items.splice(0, count);
    }
    async until(wanted) { while ((await this.take(1))[0] !== wanted); }
  };
  window.script = await import("/penstock.js");
"""
RUN = """
  const done = arguments[arguments.length - 1];
  (async (...given) => { BODY })(...arguments).then(
    (value) => done({ value }),
    (error) => done({ error: String(error), code: error.code, details: error.details }),
  );
"""


class PageError(Exception):
    """What a page threw."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(told["error"])
        self.code: str | None = told.get("code")
        self.details: dict[str, Any] = told.get("details") or {}


class Page:
    """One page in a browser."""

    def __init__(self, browser: Chrome) -> None:
        self._browser = browser

    def open(self, server: RunningServer) -> "Page":
        """Show a page of a server: whatever runs in it has the server's origin."""
        self._browser.get(f"http://127.0.0.1:{server.port_of('http')}/health")
        self.run(HELPERS)
        return self

    def run(self, body: str, *given: Any) -> Any:
        """Run the body of an async function, with `given` as it is there.

        Raises:
            PageError: it threw.
        """
        try:
            told = self._browser.execute_async_script(RUN.replace("BODY", body), *given)
        except TimeoutException:
            raise AssertionError(f"the page waits in vain: {body}") from None
        if "error" in told:
            raise PageError(told)
        return told.get("value")
