"""Which generated text goes where: whole pages, and blocks between markers in pages that people write.

A block begins with the line `<!-- generated: NAME -->` and ends with `<!-- end generated -->`. What is around
the markers is never touched.
"""

import re
from collections.abc import Callable
from pathlib import Path

from docs.generating.commands import command_block, commands_table
from docs.generating.decisions import decisions_table
from docs.generating.errors import errors_of, errors_table
from docs.generating.grpc import grpc_block
from docs.generating.http import http_page
from docs.generating.metrics import metrics_table
from docs.generating.settings import configuration_page

DOCS = Path(__file__).parents[1]
WHOLE: dict[str, Callable[[], str]] = {
    "reference/configuration.md": configuration_page,
    "reference/http-calls.md": http_page,
}
"""Pages that are generated from their first to their last line."""
BLOCKS: dict[str, Callable[..., str]] = {
    "commands": commands_table,
    "command": command_block,
    "decisions": decisions_table,
    "errors": errors_table,
    "errors of": errors_of,
    "grpc": grpc_block,
    "metrics": metrics_table,
}
"""What makes a block, by its name; words of the marker behind the name are handed on."""
END = "<!-- end generated -->"
BLOCK = re.compile(rf"(?P<begin><!-- generated: (?P<name>[^\n]+?) -->\n).*?(?P<end>{END}\n)", re.DOTALL)


def generated_pages() -> list[Path]:
    """Every page that has something generated."""
    filled = [page for page in DOCS.rglob("*.md") if BLOCK.search(page.read_text(encoding="utf-8"))]
    return sorted([*filled, *(DOCS / name for name in WHOLE)])


def text_for(page: Path) -> str:
    """A page as it should be."""
    make = WHOLE.get(page.relative_to(DOCS).as_posix())
    return fill(page.read_text(encoding="utf-8")) if make is None else make()


def fill(text: str) -> str:
    """A page with its blocks made anew."""
    return BLOCK.sub(lambda found: f"{found['begin']}\n{block(found['name'])}\n{found['end']}", text)


def block(marker: str) -> str:
    """The text of one block; a name that nobody knows is a `KeyError`."""
    if marker in BLOCKS:
        return BLOCKS[marker]()
    name, _, rest = marker.partition(" ")
    if rest.startswith("of "):
        name, rest = f"{name} of", rest.removeprefix("of ")
    return BLOCKS[name](rest)


def write() -> list[Path]:
    """Bring all pages up to date, and tell which were not."""
    stale = []
    for page in generated_pages():
        text = text_for(page)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
            stale.append(page)
    return stale
