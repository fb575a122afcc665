"""Runs a job for a command: Spark is started and stopped, a failure becomes one line."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from penstock.cli.output import Output, forget_stdout
from penstock.cli.pipeline.showing import Live, print_report, progress_for
from penstock.errors import PenstockError
from penstock.extras import require_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.cli.pipeline.options import SparkFlags
    from penstock.pipeline.jobs import Job, Report

"""What the extra `spark` brings, apart from a JVM."""
AT_ONCE = 130
"""How a command ends that was told twice to stop."""


def run_job(
    name: str,
    load: "Callable[[], Job]",
    flags: "SparkFlags",
    output: Output,
    failure: int = 1,
    *,
    needs_spark: Callable[[], bool] = lambda: True,
) -> None:
    """Run a job to its end or until it is told to stop, and print its report.

    Ends the command with 1 if the report is not clean.

    Args:
        name: of the command, which Spark shows as the application `penstock <name>`.
        load: makes the job, before Spark starts: what it finds wrong is told at once.
        failure: the exit code when the job could not be done.
        needs_spark: asked when the job is made, whether Spark is started; a job that works without it is
            not given any.
    """
    try:
        report = _report_of(name, load, flags, output, needs_spark)
    except KeyboardInterrupt:
        raise typer.Exit(AT_ONCE) from None
    except (PenstockError, ValueError, OSError) as error:
        typer.echo(f"error: {' '.join(str(error).split()) or type(error).__name__}", err=True)
        raise typer.Exit(failure) from None
    except typer.BadParameter:
        raise  # told with how the command is used
    except Exception as error:  # a fault of ours; still one line, and all of it in the file with Spark's log
        logging.getLogger("penstock").exception("the job failed")
        typer.echo(f"error: {type(error).__name__}: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(failure) from None
    try:
        print_report(report, output)
        sys.stdout.flush()
    except BrokenPipeError:
        forget_stdout()
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
    from penstock.pipeline.jobs.running import run, stopped_by_signals  # noqa: PLC0415 - needs the extra
    from penstock.pipeline.session import session  # noqa: PLC0415

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
    """Keep what PySpark logs away from the terminal; the file with Spark's log gets it, if there is one."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - needs the extra

    handler = logging.NullHandler() if log is None else logging.FileHandler(log, delay=True)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.captureWarnings(True)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # repeat what is raised
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
