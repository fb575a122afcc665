"""`penstock pipeline archive`: the log into a lake."""

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.pipeline.options import (
    BATCH_BYTES,
    BATCH_ROWS,
    HOLD_LAPSE_S,
    INTERVAL_S,
    BatchBytes,
    BatchRows,
    Follow,
    HoldLapse,
    Interval,
    Lake,
    Output,
    OutputOption,
    Server,
    SparkFlags,
    run_job,
    spread,
)

if TYPE_CHECKING:
    from penstock.pipeline.jobs import Job


class Format(StrEnum):
    """What the rows are kept as."""

    PARQUET = "parquet"
    DELTA = "delta"


@spread
def archive(
    lake: Lake,
    *,
    server: Server,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            "-f",
            metavar="FILTER",
            help="Only topics that match; may be repeated. Fixed when the lake is made. Default: all topics.",
        ),
    ] = None,
    buckets: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Into how many parts a day is split, by topic. Fixed; default: 8."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Where a new lake begins: earliest, latest, a cursor, or a time (2026-01-31T12:00:00Z).",
        ),
    ] = None,
    batch_rows: BatchRows = BATCH_ROWS,
    batch_bytes: BatchBytes = BATCH_BYTES,
    follow: Follow = False,
    interval: Interval = INTERVAL_S,
    format: Annotated[
        Format, typer.Option(help="parquet, or delta where Spark has Delta's jars.")
    ] = Format.PARQUET,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going/--fail-on-data-loss",
            help="If rows left the log before they were archived: go on and declare them, or fail.",
        ),
    ] = False,
    hold: Annotated[
        bool, typer.Option("--hold/--no-hold", help="Keep the log from removing what is not archived.")
    ] = True,
    hold_lapse: HoldLapse = HOLD_LAPSE_S,
    spark: SparkFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Copy the log into a lake of Parquet files, each row exactly once.

    It catches up with the log and ends; the next one goes on where it was. With --follow it goes on.
    """

    def load() -> "Job":
        from penstock.pipeline.jobs.archive import ArchiveOptions  # noqa: PLC0415 - Spark
        from penstock.pipeline.jobs.archive import archive as job  # noqa: PLC0415
        from penstock.pipeline.jobs.archive.looking import look_first  # noqa: PLC0415

        options = ArchiveOptions(
            lake=lake,
            server=server.options(),
            filters=tuple(filters or ()),
            buckets=buckets,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            start=start,
            follow=follow,
            interval_s=interval,
            format=format.value,
            keep_going=keep_going,
            hold=hold,
            hold_lapse_s=hold_lapse,
        )
        look_first(options)
        return partial(job, options)

    run_job("archive", load, spark, output)
