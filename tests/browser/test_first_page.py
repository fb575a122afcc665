"""The page that the documentation begins with, served from elsewhere as it says there."""

import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.pages import Page
from tests.browser.places import publish
from tests.e2e.servers import StartServer

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


def block(language: str) -> str:
    """The first example in a language."""
    found = re.search(rf"```{language}\n(.*?)```", HOW_TO.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_first_page_shows_what_is_published_and_publishes(
    browser: Chrome, page: Page, folder: tuple[Path, str], start_server: StartServer
) -> None:
    place, origin = folder
    settings = yaml.safe_load(block("yaml").replace("http://localhost:8000", origin))
    settings["http"]["port"] = 0
    server = start_server(settings)
    publish(server, "garden/pond", 3)
    address = f"127.0.0.1:{server.port_of('http')}"
    (place / "garden.html").write_text(block("html").replace("localhost:8080", address), encoding="utf-8")
    browser.get(f"{origin}/garden.html")

    def shown(wanted: str) -> None:
        WebDriverWait(browser, 15).until(lambda here: here.find_element(By.TAG_NAME, "ul").text == wanted)

    shown("garden/pond 3")
    browser.find_element(By.TAG_NAME, "button").click()
    shown('garden/pond 3\ngarden/pump {"on":true}')
