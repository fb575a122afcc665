"""The page that the documentation begins with, served from elsewhere as it says there."""

import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import yaml
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.pages import Page
from tests.browser.places import publish
from tests.support.servers import StartServer

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "use-from-a-browser.md"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and does not tell."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the origin that its pages have."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as elsewhere:
        thread = Thread(target=elsewhere.serve_forever)
        thread.start()
        yield tmp_path, f"http://127.0.0.1:{elsewhere.server_port}"
        elsewhere.shutdown()
        thread.join()


def block(language: str, word: str = "") -> str:
    """The first example in a language that has a word in it."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", HOW_TO.read_text(encoding="utf-8"), re.DOTALL)
    return next(each for each in found if word in each)


def settings_for(origin: str) -> dict[str, Any]:
    """What the documentation tells the server, with the origin that pages have here."""
    settings: dict[str, Any] = yaml.safe_load(block("yaml").replace("http://localhost:8000", origin))
    return {**settings, "http": {**settings["http"], "port": 0}}


def test_the_first_page_shows_what_is_published_and_publishes(
    browser: Chrome, page: Page, folder: tuple[Path, str], start_server: StartServer
) -> None:
    place, origin = folder
    server = start_server(settings_for(origin))
    publish(server, "garden/pond", 3)
    address = f"127.0.0.1:{server.port_of('http')}"
    note = f"http://{address}/api/v1/publish?topic=garden/note"
    httpx.post(note, content=b"hello", timeout=20, trust_env=False).raise_for_status()
    (place / "garden.html").write_text(block("html").replace("localhost:8080", address), encoding="utf-8")
    browser.get(f"{origin}/garden.html")

    def shown(wanted: str) -> None:
        WebDriverWait(browser, 15).until(lambda here: here.find_element(By.TAG_NAME, "ul").text == wanted)

    shown("garden/pond 3\ngarden/note hello")
    browser.find_element(By.TAG_NAME, "button").click()
    shown('garden/pond 3\ngarden/note hello\ngarden/pump {"on":true}')


@pytest.mark.parametrize(
    ("word", "ready"),
    [
        ("localStorage", 'document.title = "ready";'),
        ("EventSource", 'source.onopen = () => (document.title = "ready");'),
    ],
)
def test_what_is_told_later_fits_into_the_first_page(
    browser: Chrome, page: Page, folder: tuple[Path, str], start_server: StartServer, word: str, ready: str
) -> None:
    place, origin = folder
    server = start_server(settings_for(origin))
    first, _, _ = block("html").partition("  await client.subscribe")
    text = f"{first}{block('js', word)}{ready}</script>"
    address = f"127.0.0.1:{server.port_of('http')}"
    (place / "later.html").write_text(text.replace("localhost:8080", address), encoding="utf-8")
    browser.get(f"{origin}/later.html")
    WebDriverWait(browser, 15).until(lambda here: here.title == "ready")
    publish(server, "garden/pond", 3)
    WebDriverWait(browser, 15).until(
        lambda here: here.find_element(By.TAG_NAME, "ul").text == "garden/pond 3"
    )
