"""The site of the documentation: it can be built, needs nobody else, and shows what the pages say."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from os import environ
from pathlib import Path
from typing import NamedTuple

import pytest
from markdown_it import MarkdownIt

pytestmark = pytest.mark.timeout(180)  # the first test builds the site, on whatever machine

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "link": "href",
    "object": "data",
}
"""What a browser loads by itself, and which attribute says from where."""
SHOWN = ("li", "ol", "ul", "table", "tr", "td", "pre")
"""Parts of a page that two readers of Markdown may see differently."""


class Loads(HTMLParser):
    """What a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("rel") == "canonical":  # it names a page, and loads nothing
            return
        address = values.get(FETCHED.get(tag, ""))
        self.addresses += [address] if address else []


class Built(NamedTuple):
    """The site in a folder, and what was said while it was built."""

    folder: Path
    status: int
    said: str


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The site as `make docs` builds it: after a warning it is there, and was not built well."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    return Built(folder, done.returncode, done.stdout + done.stderr)


@pytest.fixture(scope="module")
def site(built: Built) -> Path:
    return built.folder


def place_of(page: Path) -> str:
    name = str(page.relative_to(DOCS).with_suffix(".html"))
    return name.replace("README.html", "index.html")


def test_it_is_built_without_a_warning(built: Built) -> None:
    assert built.status == 0, built.said


def test_it_has_every_page(site: Path) -> None:
    assert [page for page in PAGES if not (site / place_of(page)).exists()] == []
    assert (site / "search" / "search_index.json").exists()


def test_it_asks_nothing_of_other_hosts(site: Path) -> None:
    loads = Loads()
    for page in site.rglob("*.html"):
        loads.feed(page.read_text(encoding="utf-8"))
    for sheet in site.rglob("*.css"):
        loads.addresses += re.findall(
            r"(?:@import |url\()[\"']?([^\"')]+)", sheet.read_text(encoding="utf-8")
        )
    assert len(loads.addresses) > len(PAGES)
    elsewhere = [each for each in loads.addresses if re.match(r"(\w+:)?//", each)]
    assert elsewhere == []


def test_it_has_none_of_the_files_that_make_it(site: Path) -> None:
    assert list(site.rglob("generating")) == []
    assert [file for file in site.rglob("*.py*") if file.suffix != ".html"] == []


def test_links_to_files_outside_of_the_docs_lead_to_pages_of_the_site(site: Path) -> None:
    page = (site / "reference" / "penstock-v1.html").read_text(encoding="utf-8")
    found = re.search(r'href="([^"]*penstock\.proto\.html)"', page)
    assert found is not None
    shown = (site / "reference" / found[1]).resolve().read_text(encoding="utf-8")
    assert "PublishBatch" in shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_it_shows_a_page_as_a_forge_does(site: Path, page: Path) -> None:
    forge = MarkdownIt("commonmark").enable("table").render(page.read_text(encoding="utf-8"))
    whole = (site / place_of(page)).read_text(encoding="utf-8")
    ours = whole[whole.index("<article") : whole.index("</article>")]
    assert {tag: count(tag, ours) for tag in SHOWN} == {tag: count(tag, forge) for tag in SHOWN}


def count(tag: str, text: str) -> int:
    return len(re.findall(rf"<{tag}[ >]", text))
