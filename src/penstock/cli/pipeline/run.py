"""Runs a job for a command: starts and stops Spark, shows progress, prints the report.

Progress goes to standard error: a changing line on a terminal, a line every few seconds elsewhere, nothing
with JSON. The report goes to standard output. An error is one line.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import typer
from rich import filesize
from rich.console import Console
from rich.status import Status
from rich.text import Text

from penstock.cli.output import INTERRUPTED, Output, discard_stdout, print_facts, print_rows, text_of
from penstock.errors import PenstockError
from penstock.extras import require_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.cli.pipeline.flags import SparkFlags
    from penstock.spark.jobs import Job, Progress, Report


SHOWN_ROWS = 20
"""Most rows of a table in text; JSON has all of them."""
LINE_EVERY_S = 10.0


def run_job(
    name: str,
    load: "Callable[[], Job]",
    flags: "SparkFlags",
    output: Output,
    failure: int = 1,
    *,
    needs_spark: Callable[[], bool] = lambda: True,
) -> None:
    """Run a job until it ends or a signal stops it, and print its report.

    Exits with 1 if the report is not clean.

    Args:
        name: name of the command; Spark shows the application `penstock <name>`.
        load: makes the job before Spark starts, so that wrong options are reported at once.
        failure: the exit code when the job failed.
        needs_spark: called after `load`; if it returns False, the job runs without Spark.
    """
    try:
        report = _report_of(name, load, flags, output, needs_spark)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except (PenstockError, ValueError, OSError) as error:
        typer.echo(f"error: {' '.join(str(error).split()) or type(error).__name__}", err=True)
        raise typer.Exit(failure) from None
    except typer.BadParameter:
        raise  # reported as wrong usage
    except Exception as error:  # a bug of Penstock: one line here, the traceback in the file with Spark's log
        logging.getLogger("penstock").exception("the job failed")
        typer.echo(f"error: {type(error).__name__}: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(failure) from None
    try:
        print_report(report, output)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    if not report.is_clean:
        raise typer.Exit(1)


def _report_of(
    name: str,
    load: "Callable[[], Job]",
    flags: "SparkFlags",
    output: Output,
    needs_spark: Callable[[], bool],
) -> "Report":
    require_extra("spark", "penstock pipeline")
    settings = flags.settings()
    job = load()
    from penstock.spark.jobs.run import run, stopped_by_signals  # noqa: PLC0415 - needs the extra
    from penstock.spark.session import session  # noqa: PLC0415

    hush(flags.spark_log)
    stopping = threading.Event()
    with progress_for(output) as progress:
        on_stop = progress.stop if isinstance(progress, Live) else None
        with stopped_by_signals(stopping, on_stop):
            if not needs_spark():
                return run(job, cast("SparkSession", None), progress, stopping)
            progress.show("starting Spark")
            began = time.monotonic()
            with (
                session(f"penstock {name}", flags.master, settings, log=flags.spark_log) as spark,
                stopped_by_signals(stopping, on_stop),  # again: PySpark has taken SIGINT for itself
            ):
                start_s = round(time.monotonic() - began, 3)
                report = run(job, spark, progress, stopping)
            report.spark_start_s = start_s
            return report


def hush(log: Path | None) -> None:
    """Redirect PySpark's log from the terminal to the file with Spark's log, if there is one."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - needs the extra

    handler = logging.NullHandler() if log is None else logging.FileHandler(log, delay=True)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.captureWarnings(True)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # repeat what is raised
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def progress_for(output: Output) -> Iterator["Progress"]:
    """The progress display of a job, while the block runs."""
    console = Console(stderr=True)
    if output is Output.JSON:
        from penstock.spark.jobs.run import NoProgress  # noqa: PLC0415 - not for the overview

        yield NoProgress()
    elif console.is_terminal:
        with console.status("starting Spark") as status:
            yield Live(status)
    else:
        lines = Lines()
        yield lines
        lines.finish()


class Live:
    """Progress on a terminal: one changing line."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._is_stopping = False

    def show(self, text: str) -> None:
        """Replace the line."""
        self._status.update(Text(text_of(f"stopping: {text}" if self._is_stopping else text)))

    def stop(self) -> None:
        """Show that the job is stopping. Safe in a signal handler: it is drawn with the next refresh."""
        self._is_stopping = True
        self._status.update(Text("stopping..."))

    def note(self, text: str) -> None:
        """Write a line above it."""
        self._status.console.print(Text(text_of(text)))


class Lines:
    """Progress as plain lines: the first, the last, and one every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at = clock()
        self._waiting: str | None = None
        self._written: str | None = None

    def show(self, text: str) -> None:
        """Write a line, unless the last one is recent."""
        self._waiting = text_of(text)
        if self._clock() >= self._next_at:
            self.finish()
            self._next_at = self._clock() + LINE_EVERY_S

    def note(self, text: str) -> None:
        """Write a line at once."""
        typer.echo(text_of(text), err=True)

    def finish(self) -> None:
        """Write the last line, unless it is written already."""
        if self._waiting is not None and self._waiting != self._written:
            typer.echo(self._waiting, err=True)
            self._written = self._waiting
        self._waiting = None


def print_report(report: "Report", output: Output) -> None:
    """Print a report: its facts, then the first rows of its tables."""
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
    """Number and sizes of files in one line; None for another kind of fact."""
    if not isinstance(value, Mapping) or "files" not in value:
        return None
    files, *sizes = value.items()
    count = f"{files[1]:,} file{'' if files[1] == 1 else 's'}"
    return f"{count} ({', '.join(map(_size, *zip(*sizes, strict=True)))})" if sizes else count


def _size(name: str, size: int) -> str:
    """`p50_bytes` as `p50 3.9 kB`; `bytes` are those of all."""
    label = name.removesuffix("bytes").removesuffix("_")
    return f"{label} {filesize.decimal(size)}".strip()
