"""Commands that keep a lake: `penstock pipeline archive`, `compact`, `expire` and `audit`."""

from enum import StrEnum
from functools import partial
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


class Format(StrEnum):
    """Table format of a lake."""

    PARQUET = "parquet"
    DELTA = "delta"


@spread
def archive(
    lake: Lake,
    *,
    server: ServerOptions,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            "-f",
            metavar="FILTER",
            help="Only topics that match; may be repeated. Fixed when the lake is created. Default: all.",
        ),
    ] = None,
    buckets: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Parts that a day is split into, by topic. Fixed; default: 8."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Start of a new lake: earliest, latest, a cursor, or a time (2026-01-31T12:00:00Z).",
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
            help="If rows left the log before they were archived: record the loss and continue, or fail.",
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

    It catches up with the log and ends; the next run continues from there. With --follow it keeps running.
    """

    def load() -> "Job":
        from penstock.spark.jobs.archive import ArchiveOptions  # noqa: PLC0415 - Spark
        from penstock.spark.jobs.archive import archive as job  # noqa: PLC0415
        from penstock.spark.jobs.archive.job import preflight  # noqa: PLC0415

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
        preflight(options)
        return partial(job, options)

    run_job("archive", load, spark, output)


TableOption = Annotated[
    str,
    typer.Option(
        "--table", metavar="NAME", help="Which table of the lake: messages, or one such as insights/topics."
    ),
]
GRACE_S = 3_600.0
GraceOption = Annotated[
    float,
    duration_option("--grace", "Time for which replaced files stay for their readers.", default=GRACE_S),
]


@spread
def compact(
    lake: Lake,
    *,
    table: TableOption = "messages",
    target_bytes: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="Approximate size of the new files.")
    ] = 128 << 20,
    grace: GraceOption = GRACE_S,
    spark: SparkFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Merge small files of a lake; readers and archives may run meanwhile.

    Ends with 1 if a file is damaged: it stays, and the others are merged.
    """

    def load() -> "Job":
        from penstock.spark.jobs.compact import CompactOptions  # noqa: PLC0415 - Spark
        from penstock.spark.jobs.compact import compact as job  # noqa: PLC0415

        options = CompactOptions(lake=lake, table=table, target_bytes=target_bytes, grace_s=grace)
        options.check()
        return partial(job, options)

    run_job("compact", load, spark, output)


@spread
def expire(
    lake: Lake,
    *,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Remove days that ended this long ago: 30d, 12h, 8w.")
    ] = None,
    keep_bytes: Annotated[
        int | None,
        typer.Option(min=0, metavar="BYTES", help="Remove the oldest days until no more than this is left."),
    ] = None,
    table: TableOption = "messages",
    grace: GraceOption = GRACE_S,
    spark: SparkFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Remove old days from a lake; readers and archives may run meanwhile.

    Give --older-than, --keep-bytes, or both. --keep-bytes alone never removes the newest day.
    """
    if older_than is None and keep_bytes is None:
        raise typer.BadParameter("give --older-than, --keep-bytes or both")

    def load() -> "Job":
        from penstock.spark.jobs.expire import ExpireOptions  # noqa: PLC0415 - Spark
        from penstock.spark.jobs.expire import expire as job  # noqa: PLC0415

        options = ExpireOptions(
            lake=lake, table=table, older_than=older_than, keep_bytes=keep_bytes, grace_s=grace
        )
        options.check()
        return partial(job, options)

    # Only the manifest changes. Spark's flags are accepted all the same, as by all jobs.
    run_job("expire", load, spark, output, needs_spark=lambda: False)


NOT_DONE = 2
"""Exit code when the audit failed; 1 means that something was found."""

From = Annotated[str | None, typer.Option("--from", metavar="PLACE", help="Begin here: a time or a cursor.")]
Until = Annotated[str | None, typer.Option("--until", metavar="PLACE", help="End here: a time or a cursor.")]
Captured = Annotated[
    list[str] | None,
    typer.Option(
        "--captured",
        metavar="FILTER",
        help="Topics that the server stores completely, as set in log.capture; may be repeated. "
        "Default: all of them.",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Also count losses that were recorded when they happened.")
]


class ComparedServer(ServerOptions, frozen=True, kw_only=True):
    """Flags of the server that a lake is compared with, if any."""

    address: Annotated[
        str,
        typer.Option(
            "--address", metavar="URL", help="Compare with the log of this server, as far as it is retained."
        ),
    ] = ""

    def check(self) -> None:
        """Refuse flags of a server without its address."""
        if not self.address and (self.user or self.password_file or self.ca_file):
            raise typer.BadParameter("--user, --password-file and --ca-file need --address")


@spread
def audit(
    lake: Lake,
    *,
    server: ComparedServer,
    start: From = None,
    until: Until = None,
    captured: Captured = None,
    strict: Strict = False,
    spark: SparkFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Prove that a lake holds every captured message exactly once.

    Ends with 0 if it does, with 1 if something is missing, double, out of order or damaged, and with 2 if the
    audit failed.
    """
    server.check()

    def load() -> "Job":
        from penstock.spark.jobs import audit as auditing  # noqa: PLC0415 - Spark takes a while

        options = auditing.audit_options(
            lake,
            server=server.options() if server.address else None,
            start=start,
            end=until,
            captured=captured,
            is_strict=strict,
        )
        auditing.preflight(options)
        return partial(auditing.audit, options)

    run_job("audit", load, spark, output, NOT_DONE)
