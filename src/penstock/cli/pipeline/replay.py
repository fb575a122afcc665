"""`penstock pipeline replay`: publish what was published before once more."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.pipeline.options import (
    Output,
    OutputOption,
    Server,
    SparkFlags,
    run_job,
    spread,
)

if TYPE_CHECKING:
    from penstock.pipeline.jobs import Job
    from penstock.pipeline.jobs.replay.options import Place

_PLACE = "earliest, latest, a cursor (not included) or a time such as 2026-01-31T12:00:00Z"


@spread
def replay(
    *,
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="The lake, as all machines of Spark see it; without it, the log is read alone.",
        ),
    ] = None,
    lake_only: Annotated[
        bool, typer.Option("--lake-only", help="Read the lake alone: it may be that of another server.")
    ] = False,
    filter: Annotated[
        list[str] | None,
        typer.Option(metavar="FILTER", help="Only topics that match it; may be repeated. Default: all."),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {_PLACE}.")
    ] = "earliest",
    until: Annotated[
        str,
        typer.Option(
            metavar="PLACE", help="Where to end: latest, a cursor (included) or a time (not included)."
        ),
    ] = "latest",
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="What is put before each topic.")] = "replay/",
    force: Annotated[
        bool, typer.Option("--force", help="Let --prefix be empty: publish to the topics they came from.")
    ] = False,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR", help="1 is as it was, 10 ten times as fast. Default: as fast as may be."
        ),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Write down what is missing in the range, and go on.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to remember how far it has got. Default: in the lake."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Begin at the beginning, whatever was published before.")
    ] = False,
    server: Server,
    spark: SparkFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Publish messages of a lake and of the log behind it once more.

    They go to other topics, `replay/...`, in their order, with what they were as properties. Begun again with
    the same options, it goes on where it was stopped or killed, and publishes nothing twice.
    """
    is_spark_needed = True

    def load() -> "Job":
        from penstock.pipeline.jobs.replay import ReplayOptions, replay  # noqa: PLC0415 - needs Spark
        from penstock.pipeline.jobs.replay.job import has_work  # noqa: PLC0415

        options = ReplayOptions(
            server=server.options(),
            lake=lake,
            lake_only=lake_only,
            filters=tuple(filter or ()),
            start=_place("--from", start),
            until=_place("--until", until),
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


def _place(flag: str, text: str) -> "Place":
    from penstock.pipeline.jobs.replay import parse_place  # noqa: PLC0415 - needs Spark

    try:
        return parse_place(text)
    except ValueError as error:
        raise typer.BadParameter(f"{flag}: {error}") from None
