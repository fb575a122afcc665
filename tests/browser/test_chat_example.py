"""The page in `examples/chat`, from a server of its own, as its README says."""

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from penstock.client import HttpClient
from penstock.config import load
from tests.browser.pages import Page
from tests.support.servers import StartServer

CHAT = Path(__file__).parents[2] / "examples" / "chat"
PATIENCE_S = 30


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def origin() -> Iterator[str]:
    """Address of the page, on a server for files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(CHAT))) as files:
        Thread(target=files.serve_forever, daemon=True).start()
        yield f"http://localhost:{files.server_port}"
        files.shutdown()


def test_page_shows_the_history_and_what_is_said(
    browser: Chrome, page: Page, origin: str, start_server: StartServer
) -> None:
    settings = load(CHAT / "penstock.yaml").settings
    assert settings.http.cors_origins == ("http://localhost:8000",)
    server = start_server(
        {
            "http": {"port": 0, "cors_origins": [origin]},
            "web": {"explicit_topics": settings.web.explicit_topics},
        }
    )
    address = f"http://localhost:{server.port_of('http')}"
    with HttpClient(address) as client:
        client.publish("chat/lobby", {"who": "anna", "text": "<b>hello</b>"})
    browser.get(f"{origin}/?server={address}")

    def said() -> list[str]:
        return [line.text for line in browser.find_elements(By.CSS_SELECTOR, "li")]

    waiting = WebDriverWait(browser, PATIENCE_S)
    waiting.until(lambda _: said() == ["anna: <b>hello</b>"], "the history is not shown")
    browser.find_element(By.NAME, "text").send_keys("good morning\n")
    waiting.until(lambda _: said()[1:] == ["guest: good morning"], "what was said is not shown")
    assert browser.find_element(By.ID, "state").text == "open"
