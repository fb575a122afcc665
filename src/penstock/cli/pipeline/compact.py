"""`penstock pipeline compact`: small files of a lake into larger ones."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

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

TableOption = Annotated[
    str,
    typer.Option(
        "--table", metavar="NAME", help="Which table of the lake: messages, or one such as insights/topics."
    ),
]
GraceOption = Annotated[
    float,
    typer.Option(
        "--grace", min=0, metavar="SECONDS", help="How long files stay for readers that have begun with them."
    ),
]


@spread
def compact(
    lake: Lake,
    *,
    table: TableOption = "messages",
    target_bytes: Annotated[int, typer.Option(min=1, help="How large files should be, about.")] = 128 << 20,
    grace: GraceOption = 3600.0,
    spark: SparkFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Merge small files of a lake; readers and archives may go on meanwhile.

    Ends with 1 if a file is damaged: it is left where it is, and others are merged.
    """

    def load() -> "Job":
        from penstock.pipeline.jobs.compact import CompactOptions  # noqa: PLC0415 - Spark
        from penstock.pipeline.jobs.compact import compact as job  # noqa: PLC0415

        options = CompactOptions(lake=lake, table=table, target_bytes=target_bytes, grace_s=grace)
        options.check()
        return partial(job, options)

    run_job("compact", load, spark, output)
