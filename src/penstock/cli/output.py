"""Output of the commands: text or JSON, tables, progress bars, and escaping of untrusted text.

On a terminal, rows are a table with titles for people. Elsewhere columns and facts have the names of the
API: a row is a line with tabs between its values, below a line with the names, and a fact is a line
`name: value`; a value that is not known is `-`. JSON is one object a line, as the API has it. rich, which
draws on a terminal, is imported when it is needed: a script need not wait for it.
"""

import os
import shlex
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import chain
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from penstock.common.text import ABSENT

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C interrupts; commands that run until Ctrl-C exit with 0."""
LOOK_EVERY_S = 0.1
"""Interval at which a progress display is updated."""
LEAST_WIDTH = 16
"""Width that the widest column of a table keeps on a narrow terminal."""
COLUMN_GAP = 2
_LINE_ENDS = str.maketrans({"\n": r"\n", "\t": r"\t"})

Row = Mapping[str, Any]
Facts = Callable[[Row], Iterable[tuple[str, str]]]
"""Names and values of a thing, as text for people."""
Advance = Callable[[int], None]
"""Sets how much is done, of the total."""


class Output(StrEnum):
    """Output format."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", metavar="FORMAT", help="Output format: text or json.")
]


def discard_stdout() -> None:
    """Send the last flush at exit to /dev/null, after the reader of a pipe has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def program_name() -> str:
    """The command that runs this program, so that printed commands can be copied."""
    if which("penstock"):
        return "penstock"
    if Path(sys.argv[0]).name == "penstock":
        return shlex.quote(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m penstock"


class Column(NamedTuple):
    """Column of a table on a terminal: its title, and the text of a row in it."""

    title: str
    text: Callable[[Row], str]
    is_number: bool = False
    """Numbers are right-aligned."""


def print_rows(
    rows: Iterable[Row],
    columns: Sequence[str],
    output: Output,
    nothing: str,
    shown: Sequence[Column] | None = None,
) -> None:
    """Write rows: as they come, or on a terminal as a table when all are there.

    Args:
        columns: keys of the rows, for scripts.
        nothing: printed on a terminal when there are no rows.
        shown: columns on a terminal; by default the keys.
    """
    if output is Output.JSON:
        print_json(rows)
    elif not sys.stdout.isatty():
        _print_lines(rows, columns)
    elif not (found := list(rows)):
        print(nothing)
    else:
        draw_rows(found, shown or [_column_of(key, found) for key in columns])


def draw_rows(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Draw rows as a table on a terminal."""
    cells = [[column.text(row) for column in columns] for row in rows]
    draw_table([column.title for column in columns], cells, [column.is_number for column in columns])


def _column_of(key: str, rows: Sequence[Row]) -> Column:
    is_number = all(_is_number(row.get(key)) for row in rows)
    return Column(key, lambda row: text_of(row.get(key)), is_number)


def print_facts(facts: Row, output: Output, shown: Facts | None = None) -> None:
    """Write the facts about one thing, a line each.

    Args:
        shown: makes the facts on a terminal; by default they are as a script gets them.
    """
    if output is Output.JSON:
        print_json([facts])
    elif shown is not None and sys.stdout.isatty():
        print_pairs(shown(facts))
    else:
        print_pairs(_flatten(facts))


def print_pairs(facts: Iterable[tuple[str, str]]) -> None:
    """Write facts that are text already: name and value."""
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415 - takes a while

        _draw_facts(Console(), facts)
    else:
        for name, value in facts:
            print(f"{name}: {value}")


def print_json(values: Iterable[Row]) -> None:
    """Write one JSON object a line."""
    for value in values:
        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def text_of(value: object) -> str:
    """A value as a piece of one line, without line ends and terminal control characters."""
    if value is None or value == "":
        return ABSENT
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, dict | list | tuple):
        return one_line(msgspec.json.encode(value))
    return one_line(str(value).encode(errors="replace"))


def printable(data: bytes) -> bytes:
    """Text without terminal control characters; line ends and tabs stay."""
    text = data.decode("utf-8", "backslashreplace")
    safe = (each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text)
    return "".join(safe).encode()


def one_line(data: bytes) -> str:
    """Text without line ends and terminal control characters."""
    return printable(data).decode().translate(_LINE_ENDS)


def json_value(value: Any) -> Any:
    """A value for JSON: bytes as text, or in base64 where they are not UTF-8."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"$bytes": b64encode(value).decode()}


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Advance]:
    """Show a progress bar, or without a total a count, while the block runs.

    It is drawn on standard error, and only on a terminal.
    """
    from rich.console import Console  # noqa: PLC0415 - takes a while
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Progress(*_progress_columns(total is not None), console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda reached: progress.update(task, completed=reached)


@contextmanager
def progress_count(what: str, count: Callable[[], int], total: int | None) -> Iterator[None]:
    """Show a progress bar that polls a counter; nothing if the total is 1.

    A thread polls: work that never awaits would block its event loop.
    """
    if total == 1:
        yield
        return
    done = threading.Event()
    with progress_bar(what, total) as advance:
        poller = threading.Thread(target=_poll, args=(count, advance, done), daemon=True)
        poller.start()
        try:
            yield
        finally:
            done.set()
            poller.join()


def _poll(count: Callable[[], int], advance: Advance, done: threading.Event) -> None:
    while not done.wait(LOOK_EVERY_S):
        advance(count())


def _progress_columns(has_total: bool) -> "list[ProgressColumn]":
    from rich import progress  # noqa: PLC0415 - takes a while

    what = progress.TextColumn("{task.description}")
    if has_total:
        return [what, progress.BarColumn(), progress.TaskProgressColumn(), progress.TimeRemainingColumn()]
    return [progress.SpinnerColumn(), what, progress.MofNCompleteColumn(), progress.TimeElapsedColumn()]


def _flatten(facts: Row, within: str = "") -> Iterator[tuple[str, str]]:
    """Facts by name: those of a mapping with a dotted name, those of a list one by one."""
    for key, value in facts.items():
        name = f"{within}{text_of(key)}"
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{name}.")
        elif isinstance(value, list):
            yield from ((name, _entry(each)) for each in value)
        else:
            yield name, text_of(value)


def _entry(value: object) -> str:
    if not isinstance(value, Mapping):
        return text_of(value)
    return ", ".join(f"{text_of(name)} {text_of(each)}" for name, each in value.items())


def _print_lines(rows: Iterable[Row], columns: Sequence[str]) -> None:
    waiting = iter(rows)
    first = next(waiting, None)  # before anything is written, so that an error comes alone
    print("\t".join(columns))
    for row in () if first is None else chain((first,), waiting):
        print("\t".join(text_of(row.get(column)) for column in columns))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> None:
    """Draw a table that fits the terminal: a line for each row, or on a narrow one a block of facts each.

    Args:
        numbers: for each column, whether it holds numbers; these are right-aligned.
    """
    from rich.console import Console  # noqa: PLC0415 - takes a while

    console = Console()
    if _least_width([columns, *rows]) <= console.width:
        _draw_lines(console, columns, rows, numbers)
    elif _least_width([list(map(_longest_word, columns)), *rows]) <= console.width:
        _draw_lines(console, list(map(_in_two_lines, columns)), rows, numbers)
    else:
        for number, row in enumerate(rows):
            if number:
                console.print()
            _draw_facts(console, zip(columns, row, strict=True))


def _least_width(cells: Sequence[Sequence[str]]) -> int:
    """The width that a table needs; its widest column can be folded."""
    from rich.cells import cell_len  # noqa: PLC0415 - takes a while

    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    foldable = max(0, max(widths) - LEAST_WIDTH)
    return sum(widths) + COLUMN_GAP * (len(widths) - 1) - foldable


def _in_two_lines(title: str) -> str:
    """A title of several words in two lines, of about the same width."""
    words = title.replace("_", " ").split()
    splits = [(" ".join(words[:at]), " ".join(words[at:])) for at in range(1, len(words))]
    return "\n".join(min(splits, key=lambda parts: max(map(len, parts)))) if splits else title


def _longest_word(title: str) -> str:
    """The wider line of a title in two lines."""
    return max(_in_two_lines(title).split("\n"), key=len)


def _draw_lines(
    console: "Console", titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]
) -> None:
    from rich.table import Table  # noqa: PLC0415 - takes a while
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0), header_style="bold")
    for title, is_number in zip(titles, numbers, strict=True):
        table.add_column(
            Text(title), justify="right" if is_number else "left", overflow="fold", vertical="top"
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _draw_facts(console: "Console", facts: Iterable[tuple[str, str]]) -> None:
    from rich.table import Table  # noqa: PLC0415 - takes a while
    from rich.text import Text  # noqa: PLC0415

    table = Table.grid(padding=(0, COLUMN_GAP))
    table.add_column(style="bold", overflow="fold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(name), Text(value))
    console.print(table)
