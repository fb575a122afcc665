"""Commands that use the log and the lake: `penstock pipeline replay` and `insights`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.flags import duration_option, spread
from penstock.cli.output import Output, OutputOption
from penstock.cli.pipeline.flags import (
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
    ServerOptions,
    SparkFlags,
)
from penstock.cli.pipeline.run import run_job

if TYPE_CHECKING:
    from penstock.spark.jobs import Job
    from penstock.spark.options import PositionSpec


LATENESS_S = 10.0


@spread
def insights(
    lake: Lake,
    *,
    server: ServerOptions,
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
        typer.Option("--drops/--no-drops", help="Include undelivered messages, from $penstock/drops."),
    ] = True,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Start of the first run: earliest, latest, a cursor, or a time (2026-01-31T12:00:00Z).",
        ),
    ] = None,
    follow: Follow = False,
    interval: Interval = INTERVAL_S,
    lateness: Annotated[
        float,
        duration_option("--lateness", "Time that a window stays open for late messages.", default=LATENESS_S),
    ] = LATENESS_S,
    prefix_levels: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="Levels of a topic that form its prefix.")
    ] = 1,
    hot: Annotated[
        int,
        typer.Option(min=1, metavar="COUNT", help="Number of hot topics, and rows in a published message."),
    ] = 20,
    publish: Annotated[
        bool, typer.Option("--publish", help="Also publish insights, to $penstock/insights/...")
    ] = False,
    batch_rows: BatchRows = BATCH_ROWS,
    batch_bytes: BatchBytes = BATCH_BYTES,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going/--fail-on-data-loss",
            help="If rows left the log before they were read: record the loss and continue, or fail.",
        ),
    ] = False,
    hold: Annotated[
        bool, typer.Option("--hold/--no-hold", help="Keep the log from removing what was not read.")
    ] = True,
    hold_lapse: HoldLapse = HOLD_LAPSE_S,
    spark: SparkFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Aggregate the log by windows: rates, sizes, latencies, gaps, drops, hot topics and clients.

    It catches up with the log and ends; the next run continues from there. With --follow it keeps running.
    """

    def load() -> "Job":
        from penstock.spark.jobs.insights import InsightsOptions  # noqa: PLC0415 - Spark
        from penstock.spark.jobs.insights import insights as job  # noqa: PLC0415

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
        options.preflight()
        return partial(job, options)

    run_job("insights", load, spark, output)


_POSITIONS = "earliest, latest, a cursor (not included) or a time such as 2026-01-31T12:00:00Z"


@spread
def replay(
    *,
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="The lake, as all machines of Spark see it; without it, only the log is read.",
        ),
    ] = None,
    lake_only: Annotated[
        bool, typer.Option("--lake-only", help="Read only the lake; it may be that of another server.")
    ] = False,
    filter: Annotated[
        list[str] | None,
        typer.Option(metavar="FILTER", help="Only topics that match it; may be repeated. Default: all."),
    ] = None,
    start: Annotated[str, typer.Option("--from", metavar="PLACE", help=f"Start: {_POSITIONS}.")] = "earliest",
    until: Annotated[
        str,
        typer.Option(metavar="PLACE", help="End: latest, a cursor (included) or a time (not included)."),
    ] = "latest",
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Prefix of each topic.")] = "replay/",
    force: Annotated[
        bool, typer.Option("--force", help="Allow an empty --prefix: publish to the original topics.")
    ] = False,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR", help="1 is the original speed, 10 ten times as fast. Default: no limit."
        ),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Record what is missing in the range, and continue.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for the progress. Default: in the lake."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Begin again, whatever was published before.")
    ] = False,
    server: ServerOptions,
    spark: SparkFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Publish messages of a lake and of the log behind it once more.

    They are published to other topics, `replay/...`, in their order, with their origin as properties. Run
    again with the same options, it continues where it was stopped or killed, and publishes nothing twice.
    """
    is_spark_needed = True

    def load() -> "Job":
        from penstock.spark.jobs.replay import ReplayOptions, replay  # noqa: PLC0415 - needs Spark
        from penstock.spark.jobs.replay.job import has_work  # noqa: PLC0415

        options = ReplayOptions(
            server=server.options(),
            lake=lake,
            lake_only=lake_only,
            filters=tuple(filter or ()),
            start=_parse_position("--from", start),
            until=_parse_position("--until", until),
            prefix=prefix,
            speed=speed,
            force=force,
            keep_going=keep_going,
            state=state,
            again=again,
        )
        nonlocal is_spark_needed
        is_spark_needed = has_work(options)
        return partial(replay, options)

    run_job("replay", load, spark, output, needs_spark=lambda: is_spark_needed)


def _parse_position(flag: str, text: str) -> "PositionSpec":
    from penstock.spark.options import parse_position  # noqa: PLC0415 - needs Spark

    try:
        return parse_position(text)
    except ValueError as error:
        raise typer.BadParameter(f"{flag}: {error}") from None
