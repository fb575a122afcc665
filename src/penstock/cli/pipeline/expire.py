"""`penstock pipeline expire`: old days out of a lake."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.pipeline.compact import GraceOption, TableOption
from penstock.cli.pipeline.options import (
    Lake,
    Output,
    OutputOption,
    SparkFlags,
    run_job,
    spread,
)

if TYPE_CHECKING:
    from penstock.pipeline.jobs import Job


@spread
def expire(
    lake: Lake,
    *,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Remove days that ended so long ago: 30d, 12h, 8w.")
    ] = None,
    keep_bytes: Annotated[
        int | None, typer.Option(min=0, help="Remove the oldest days until no more than this is left.")
    ] = None,
    table: TableOption = "messages",
    grace: GraceOption = 3600.0,
    spark: SparkFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Remove old days from a lake; readers and archives may go on meanwhile.

    Give --older-than, --keep-bytes, or both. For the sake of --keep-bytes alone the newest day never goes.
    """
    if older_than is None and keep_bytes is None:
        raise typer.BadParameter("say what is to go: --older-than, --keep-bytes or both")

    def load() -> "Job":
        from penstock.pipeline.jobs.expire import ExpireOptions  # noqa: PLC0415 - Spark
        from penstock.pipeline.jobs.expire import expire as job  # noqa: PLC0415

        options = ExpireOptions(
            lake=lake, table=table, older_than=older_than, keep_bytes=keep_bytes, grace_s=grace
        )
        options.check()
        return partial(job, options)

    # It moves names in a manifest. Spark's flags are there all the same, as they are for all jobs.
    run_job("expire", load, spark, output, needs_spark=lambda: False)
