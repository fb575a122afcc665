"""What people see of the demonstration: chapters, sentences, tables, and what goes on meanwhile.

On a terminal things move and have colours. Elsewhere there are plain lines, and only what stays.
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

from penstock.errors import PenstockError

PLAIN_WIDTH = 110
INDENT = 2


class NotAsPromised(PenstockError):
    """The demonstration found something that should not be."""

    code = "demo-failed"


class Screen:
    """Standard output, chapter by chapter."""

    def __init__(self) -> None:
        plain = Console()
        self._console = Console(highlight=False, width=None if plain.is_terminal else PLAIN_WIDTH)
        self._chapters = 0
        self._is_below_table = False  # which has left an empty line

    @property
    def is_live(self) -> bool:
        """Whether something that moves can be seen."""
        return self._console.is_terminal

    def title(self, text: str) -> None:
        """Say what this is."""
        self._console.print(Text(text, style="bold"))

    def chapter(self, title: str) -> None:
        """Begin the next chapter."""
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
        """Write a sentence."""
        self._print(Padding(Text(text), (0, 0, 0, INDENT), expand=False))

    def show(self, text: str) -> None:
        """Write something that can be copied, on one line however long it is."""
        self._console.print(Text(f"    {text}", style="green" if self.is_live else ""), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Write rows."""
        self._print(_make_table(columns, rows))
        self._is_below_table = True

    def check(self, is_so: bool, text: str) -> None:
        """Write what was found to be so.

        Raises:
            NotAsPromised: it is not so.
        """
        if not is_so:
            raise NotAsPromised(f"this should be so, and is not: {text}")
        line = Text.assemble(("ok", "bold green"), f"  {text}")
        self._print(Padding(line, (0, 0, 0, INDENT), expand=False))

    @contextmanager
    def moving(self) -> Iterator["Moving"]:
        """A table that changes while this lasts."""
        if not self.is_live:
            yield Moving(None)
            return
        with Live(console=self._console, refresh_per_second=8, transient=True) as live:
            yield Moving(live)

    @contextmanager
    def working(self, text: str) -> Iterator["Working"]:
        """Say that something takes a while."""
        if not self.is_live:
            yield Working(None)
            return
        with self._console.status(Text(text)) as status:
            yield Working(status)

    def _print(self, what: RenderableType) -> None:
        """Write something; where it is no terminal, without the spaces that rich puts behind it."""
        self._is_below_table = False
        if self.is_live:
            self._console.print(what)
            return
        with self._console.capture() as captured:
            self._console.print(what)
        self._console.out("\n".join(line.rstrip() for line in captured.get().splitlines()))


class Moving:
    """A table on a terminal that is replaced by the next one."""

    def __init__(self, live: Live | None) -> None:
        self._live = live

    def update(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Show the rows as they are now."""
        if self._live is not None:
            self._live.update(_make_table(columns, rows))


class Working:
    """How far something is, in a line that changes; a job of the pipeline can be given it."""

    def __init__(self, status: Status | None) -> None:
        self._status = status

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._status is not None:
            self._status.update(Text(text))

    note = show


def _make_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> RenderableType:
    """Rows below their names; numbers stand on the right."""
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
