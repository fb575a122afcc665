"""`penstock pipeline insights`: what goes on in the log, as tables and topics."""

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


@spread
def insights(
    lake: Lake,
    *,
    server: Server,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            "-f",
            metavar="FILTER",
            help="Only topics that match; may be repeated. Default: all topics.",
        ),
    ] = None,
    drops: Annotated[
        bool,
        typer.Option("--drops/--no-drops", help="Look at what was not delivered, too; on $penstock/drops."),
    ] = True,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Where the first run begins: earliest, latest, a cursor, or a time (2026-01-31T12:00:00Z).",
        ),
    ] = None,
    follow: Follow = False,
    interval: Interval = INTERVAL_S,
    lateness: Annotated[
        float, typer.Option(min=0, help="Seconds that a window waits for messages that come late.")
    ] = 10.0,
    prefix_levels: Annotated[int, typer.Option(min=1, help="How many levels of a topic are its prefix.")] = 1,
    hot: Annotated[
        int, typer.Option(min=1, help="How many hot topics there are, and rows in a published message.")
    ] = 20,
    publish: Annotated[
        bool, typer.Option("--publish", help="Publish insights, too; to $penstock/insights/...")
    ] = False,
    batch_rows: BatchRows = BATCH_ROWS,
    batch_bytes: BatchBytes = BATCH_BYTES,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going/--fail-on-data-loss",
            help="If rows left the log before they were seen: go on and declare them, or fail.",
        ),
    ] = False,
    hold: Annotated[
        bool, typer.Option("--hold/--no-hold", help="Keep the log from removing what was not seen.")
    ] = True,
    hold_lapse: HoldLapse = HOLD_LAPSE_S,
    spark: SparkFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Tell what goes on in the log: rates, sizes, latencies, gaps, drops, hot topics and clients, by windows.

    It catches up with the log and ends; the next one goes on where it was. With --follow it goes on.
    """

    def load() -> "Job":
        from penstock.pipeline.jobs.insights import InsightsOptions  # noqa: PLC0415 - Spark
        from penstock.pipeline.jobs.insights import insights as job  # noqa: PLC0415

        options = InsightsOptions(
            lake=lake,
            server=server.options(),
            filters=tuple(filters or ("#",)),
            drops=drops,
            start=start,
            follow=follow,
            interval_s=interval,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            lateness_s=lateness,
            prefix_levels=prefix_levels,
            hot_topics=hot,
            publish=publish,
            keep_going=keep_going,
            hold=hold,
            hold_lapse_s=hold_lapse,
        )
        options.look_first()
        return partial(job, options)

    run_job("insights", load, spark, output)
