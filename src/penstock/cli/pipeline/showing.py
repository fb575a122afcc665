"""What people see of a job: where it is while it runs, and its report when it is over.

Progress goes to standard error: a line that changes on a terminal, a line now and then elsewhere, and nothing
where JSON is asked for. The report goes to standard output.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import typer
from rich import filesize
from rich.console import Console
from rich.status import Status
from rich.text import Text

from penstock.cli.output import Output
from penstock.cli.tables import print_facts, print_rows, text_of

if TYPE_CHECKING:
    from penstock.pipeline.jobs import Progress, Report

SHOWN_ROWS = 20
"""How many rows of a table people are shown; JSON has them all."""
LINE_EVERY_S = 10.0


@contextmanager
def progress_for(output: Output) -> Iterator["Progress"]:
    """Where a job shows how far it is, as long as it runs."""
    console = Console(stderr=True)
    if output is Output.JSON:
        from penstock.pipeline.jobs.running import Silence  # noqa: PLC0415 - not for the overview

        yield Silence()
    elif console.is_terminal:
        with console.status("starting Spark") as status:
            yield Live(status)
    else:
        lines = Lines()
        yield lines
        lines.finish()


class Live:
    """A line on a terminal that changes."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._is_stopping = False

    def show(self, text: str) -> None:
        """Replace the line."""
        self._status.update(Text(text_of(f"stopping: {text}" if self._is_stopping else text)))

    def stop(self) -> None:
        """Say that the job is about to end; it only draws with the spinner's next turn, so signals may."""
        self._is_stopping = True
        self._status.update(Text("stopping..."))

    def note(self, text: str) -> None:
        """Write a line above it."""
        self._status.console.print(Text(text_of(text)))


class Lines:
    """Plain lines: the first, the last, and now and then one of those between."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at = clock()
        self._waiting: str | None = None
        self._written: str | None = None

    def show(self, text: str) -> None:
        """Write a line, unless the last one was a moment ago."""
        self._waiting = text_of(text)
        if self._clock() >= self._next_at:
            self.finish()
            self._next_at = self._clock() + LINE_EVERY_S

    def note(self, text: str) -> None:
        """Write a line at once."""
        typer.echo(text_of(text), err=True)

    def finish(self) -> None:
        """Write what waits, unless it was the last that was written."""
        if self._waiting is not None and self._waiting != self._written:
            typer.echo(self._waiting, err=True)
            self._written = self._waiting
        self._waiting = None


def print_report(report: "Report", output: Output) -> None:
    """Write a report: its facts, then its tables, of which people see the beginning."""
    if output is Output.JSON:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        return
    shown = {name: _sizes(value) or value for name, value in report.facts.items()}
    facts = {"job": report.job, **shown, "took_s": report.took_s}
    if report.spark_start_s is not None:
        facts["spark_start_s"] = report.spark_start_s
    print_facts({**facts, "was_stopped": True} if report.was_stopped else facts, output)
    for name, rows in report.tables.items():
        if not rows:
            continue
        print(f"\n{name}:")
        print_rows(islice(rows, SHOWN_ROWS), list(rows[0]), output, "")
        if len(rows) > SHOWN_ROWS:
            print(f"... and {len(rows) - SHOWN_ROWS:,} more; -o json has them all")


def _sizes(value: object) -> str | None:
    """How many files there are and how large, in one line for people; None if it is about something else."""
    if not isinstance(value, Mapping) or "files" not in value:
        return None
    files, *sizes = value.items()
    count = f"{files[1]:,} file{'' if files[1] == 1 else 's'}"
    return f"{count} ({', '.join(map(_size, *zip(*sizes, strict=True)))})" if sizes else count


def _size(name: str, size: int) -> str:
    """`p50_bytes` as `p50 3.9 kB`; `bytes` are those of all."""
    label = name.removesuffix("bytes").removesuffix("_")
    return f"{label} {filesize.decimal(size)}".strip()
