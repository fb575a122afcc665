"""`penstock pipeline audit`: prove that a lake is complete, or say what is wrong with it."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.pipeline.options import (
    CaFile,
    Confs,
    Lake,
    Master,
    Output,
    OutputOption,
    PasswordFile,
    Server,
    SparkFlags,
    SparkLog,
    User,
    run_job,
)

if TYPE_CHECKING:
    from penstock.pipeline.jobs import Job

NOT_DONE = 2
"""How it ends when there is no answer; 1 says that something was found."""

OptionalAddress = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="URL", help="Compare with the log of this server, as far as it still has it."
    ),
]
From = Annotated[str | None, typer.Option("--from", metavar="PLACE", help="Begin here: a time or a cursor.")]
Until = Annotated[str | None, typer.Option("--until", metavar="PLACE", help="End here: a time or a cursor.")]
Captured = Annotated[
    list[str] | None,
    typer.Option(
        "--captured",
        metavar="FILTER",
        help="Topics that the server keeps completely, as its log.capture says; may be repeated. "
        "Default: all of them.",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Count losses that were declared when they happened as well.")
]


def audit(
    lake: Lake,
    *,
    address: OptionalAddress = None,
    user: User = None,
    password_file: PasswordFile = None,
    ca_file: CaFile = None,
    start: From = None,
    until: Until = None,
    captured: Captured = None,
    strict: Strict = False,
    master: Master = None,
    conf: Confs = None,
    spark_log: SparkLog = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Prove that a lake holds every captured message exactly once.

    Ends with 0 if it does, with 1 if something is missing, double, out of order or damaged, and with 2 if it
    could not be found out.
    """
    if address is None and (user or password_file or ca_file):
        raise typer.BadParameter("--user, --password-file and --ca-file need --address")
    server = None if address is None else Server(address, user, password_file, ca_file)

    def load() -> "Job":
        from penstock.pipeline.jobs import audit as auditing  # noqa: PLC0415 - Spark takes a while

        options = auditing.audit_options(
            lake,
            server=None if server is None else server.options(),
            start=start,
            end=until,
            captured=captured,
            is_strict=strict,
        )
        auditing.look_first(options)
        return partial(auditing.audit, options)

    run_job("audit", load, SparkFlags(master, conf, spark_log), output, NOT_DONE)
