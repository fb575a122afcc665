"""`penstock pipeline audit`: prove that a lake is complete, or say what is wrong with it."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.pipeline.options import (
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

NOT_DONE = 2
"""How it ends when there is no answer; 1 says that something was found."""

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


class ComparedServer(Server, frozen=True, kw_only=True):
    """The server whose log a lake is compared with, if one is named."""

    address: Annotated[
        str,
        typer.Option(
            "--address", metavar="URL", help="Compare with the log of this server, as far as it still has it."
        ),
    ] = ""

    def check(self) -> None:
        """Refuse what is said about a server that is not named."""
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

    Ends with 0 if it does, with 1 if something is missing, double, out of order or damaged, and with 2 if it
    could not be found out.
    """
    server.check()

    def load() -> "Job":
        from penstock.pipeline.jobs import audit as auditing  # noqa: PLC0415 - Spark takes a while

        options = auditing.audit_options(
            lake,
            server=server.options() if server.address else None,
            start=start,
            end=until,
            captured=captured,
            is_strict=strict,
        )
        auditing.look_first(options)
        return partial(auditing.audit, options)

    run_job("audit", load, spark, output, NOT_DONE)
