"""Tables in Markdown."""

from collections.abc import Iterable, Sequence

PROPER = ("Spark",)
"""Words that stay large wherever they stand."""


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a line of titles; a cell may hold Markdown of one line."""
    lines = [_line(titles), _line(["---"] * len(titles)), *map(_line, rows)]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """Text as code, also within a table."""
    return f"`{text}`"


def sentence(text: str) -> str:
    """A description as a cell has it: in one line, beginning small, without a full stop at its end."""
    words = " ".join(text.split())
    words = words.removesuffix(".")
    is_plain = not words[1:2].isupper() and not words.startswith(PROPER)
    return words[:1].lower() + words[1:] if is_plain else words


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
