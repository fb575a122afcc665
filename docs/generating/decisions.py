"""The list of decisions, with what became of each."""

import re
from pathlib import Path

from docs.generating.tables import table

FOLDER = Path(__file__).parents[1] / "adr"
TEMPLATE = "0000-template.md"
HEAD = re.compile(r"# (?P<number>\d{4}): (?P<title>.+)\n\nStatus: (?P<status>.+?)\. Date: (?P<date>[\d-]+)\.")


def decisions_table() -> str:
    """Number, title, status and date of each decision."""
    pages = sorted(page for page in FOLDER.glob("[0-9]*.md") if page.name != TEMPLATE)
    return table(("decision", "status", "date"), map(_row, pages))


def _row(page: Path) -> list[str]:
    head = HEAD.match(page.read_text(encoding="utf-8"))
    if head is None:
        raise ValueError(f"{page.name} does not begin as {TEMPLATE} does")
    return [f"[{head['number']}]({page.name}) {head['title']}", head["status"], head["date"]]
