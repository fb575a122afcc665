"""Tables on a terminal, made to fit it.

Apart from `tables` because what draws them takes a while to import, and a script need not wait for it.
"""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

LEAST_WIDTH = 16
"""What the widest column of a table is left with, where there is little room."""
GAP = 2
"""Between two columns."""


def draw_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Draw one fact below the other."""
    _draw_facts(Console(), facts)


def draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> None:
    """Draw a line for each row, or where there is no room for that, its facts and a line between rows.

    Args:
        numbers: which columns hold numbers, that end at the same place.
    """
    console = Console()
    if _least_width([columns, *rows]) <= console.width:
        _draw_lines(console, columns, rows, numbers)
    elif _least_width([list(map(_longest_word, columns)), *rows]) <= console.width:
        _draw_lines(console, [column.replace("_", "_\n") for column in columns], rows, numbers)
    else:
        for number, row in enumerate(rows):
            if number:
                console.print()
            _draw_facts(console, zip(columns, row, strict=True))


def _least_width(cells: Sequence[Sequence[str]]) -> int:
    """How wide a table has to be; its widest column can give way."""
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    can_give_way = max(0, max(widths) - LEAST_WIDTH)
    return sum(widths) + GAP * (len(widths) - 1) - can_give_way


def _longest_word(name: str) -> str:
    """What is widest of the name of a column with a line for each word."""
    return max(name.replace("_", "_ ").split(), key=len)


def _draw_lines(
    console: Console, titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]
) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for title, is_number in zip(titles, numbers, strict=True):
        table.add_column(
            Text(title), justify="right" if is_number else "left", overflow="fold", vertical="top"
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _draw_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    table = Table.grid(padding=(0, GAP))
    table.add_column(style="bold", overflow="fold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(name), Text(value))
    console.print(table)
