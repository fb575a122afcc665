"""Output of the tour: chapters, sentences, tables and progress.

A terminal gets colours and live tables. Elsewhere the output is plain lines without progress.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.rule import Rule
from rich.status import Status
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 110
INDENT = 2


class PlantError(Exception):
    """The tour cannot continue; the text says why."""


class CheckFailed(PlantError):
    """A check of the tour failed."""


class Screen:
    """Standard output, chapter by chapter."""

    def __init__(self) -> None:
        plain = Console()
        self._console = Console(highlight=False, width=None if plain.is_terminal else PLAIN_WIDTH)
        self._chapters = 0
        self._is_below_table = False  # a table ends with an empty line

    @property
    def is_live(self) -> bool:
        """True on a terminal."""
        return self._console.is_terminal

    def title(self, text: str) -> None:
        """Print the title."""
        self._console.print(Text(text, style="bold"))

    def chapter(self, title: str) -> None:
        """Start the next chapter."""
        self._chapters += 1
        heading = f"{self._chapters}. {title}"
        if not self._is_below_table:
            self._console.print()
        self._is_below_table = False
        if self.is_live:
            self._console.print(Rule(Text(heading, style="bold cyan"), align="left"))
        else:
            self._console.print(Text(heading))

    def say(self, text: str) -> None:
        """Print a sentence."""
        self._print(Padding(Text(text), (0, 0, 0, INDENT), expand=False))

    def show(self, text: str) -> None:
        """Print a command or query to copy, on one line."""
        self._console.print(Text(f"    {text}", style="green" if self.is_live else ""), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table."""
        self._print(_make_table(columns, rows))
        self._is_below_table = True

    def check(self, is_true: bool, text: str) -> None:
        """Print a fact that was checked.

        Raises:
            CheckFailed: it is not true.
        """
        if not is_true:
            raise CheckFailed(f"check failed: {text}")
        line = Text.assemble(("ok", "bold green"), f"  {text}")
        self._print(Padding(line, (0, 0, 0, INDENT), expand=False))

    @contextmanager
    def live_table(self) -> Iterator["LiveTable"]:
        """Show a table that is updated during the block."""
        if not self.is_live:
            yield LiveTable(None)
            return
        with Live(console=self._console, refresh_per_second=8, transient=True) as live:
            yield LiveTable(live)

    @contextmanager
    def progress(self, text: str) -> Iterator["Progress"]:
        """Show a status line during the block."""
        if not self.is_live:
            yield Progress(None)
            return
        with self._console.status(Text(text)) as status:
            yield Progress(status)

    def _print(self, what: RenderableType) -> None:
        """Print; outside a terminal without rich's trailing spaces."""
        self._is_below_table = False
        if self.is_live:
            self._console.print(what)
            return
        with self._console.capture() as captured:
            self._console.print(what)
        self._console.out("\n".join(line.rstrip() for line in captured.get().splitlines()))


class LiveTable:
    """A table on a terminal, replaced at each update."""

    def __init__(self, live: Live | None) -> None:
        self._live = live

    def update(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Replace the table."""
        if self._live is not None:
            self._live.update(_make_table(columns, rows))


class Progress:
    """Status line on a terminal; Spark jobs report to it."""

    def __init__(self, status: Status | None) -> None:
        self._status = status

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._status is not None:
            self._status.update(Text(text))

    note = show


def _make_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> RenderableType:
    """Table with a header; numbers are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for index, column in enumerate(columns):
        is_number = all(isinstance(row[index], int | float) for row in rows)
        table.add_column(Text(column), justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    return Padding(table, (1, 0, 1, INDENT + 2), expand=False)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
