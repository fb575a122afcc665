"""What the commands of `penstock pipeline` have in common: where the lake, the server and Spark are.

A command is a module with one function of its name. Spark, and whatever imports it, is imported in `load`,
which runs once it is known that Spark is installed:

    @spread
    def archive(
        lake: Lake,
        *,
        server: Server,
        batch_rows: Annotated[int, typer.Option(min=1, help="Rows of a batch.")] = 1_000_000,
        spark: SparkFlags,
        output: OutputOption = Output.TEXT,
    ) -> None:
        '''Copy the log into a lake.'''

        def load() -> Job:
            from penstock.pipeline.jobs.archive import ArchiveOptions, archive  # noqa: PLC0415 - Spark

            return partial(archive, ArchiveOptions(lake=lake, server=server.options(), batch_rows=batch_rows))

        run_job("archive", load, spark, output)

and the job itself, in `penstock.pipeline.jobs.archive`:

    def archive(
        options: ArchiveOptions, *, spark: SparkSession, progress: Progress, stopping: threading.Event
    ) -> Report: ...
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.connection import HOST, PasswordFile, User, first_line, trusting
from penstock.cli.flags import Group, spread
from penstock.cli.output import Output, OutputOption
from penstock.cli.pipeline.running import run_job
from penstock.cli.places import OWN_PORTS

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "HERE",
    "HOLD_LAPSE_S",
    "INTERVAL_S",
    "Address",
    "BatchBytes",
    "BatchRows",
    "CaFile",
    "Follow",
    "HoldLapse",
    "Interval",
    "Lake",
    "Output",
    "OutputOption",
    "Server",
    "SparkFlags",
    "run_job",
    "spread",
]

HERE = f"http://{HOST}:{OWN_PORTS['http']}"
BATCH_ROWS = 2_000_000
BATCH_BYTES = 256 << 20
INTERVAL_S = 10.0
HOLD_LAPSE_S = 259_200.0

Lake = Annotated[
    str, typer.Option("--lake", metavar="FOLDER", help="The lake: a folder that all machines of Spark see.")
]
Address = Annotated[str, typer.Option("--address", metavar="URL", help="Where the server's HTTP port is.")]
BatchRows = Annotated[int, typer.Option("--batch-rows", min=1, help="Rows of a batch, at most.")]
BatchBytes = Annotated[
    int, typer.Option("--batch-bytes", min=1, help="Bytes of a batch as the log stores them, about.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on until told to stop.")]
Interval = Annotated[
    float, typer.Option("--interval", min=0.1, help="With --follow: seconds between looks at the log.")
]
HoldLapse = Annotated[
    float, typer.Option("--hold-lapse", min=1, help="Seconds after which a hold ends that no run renews.")
]
CaFile = Annotated[
    Path | None,
    typer.Option("--ca-file", metavar="FILE", help="With https: trust these certificates, not the system's."),
]


class Server(Group, frozen=True, kw_only=True):
    """A server, and who asks it."""

    address: Address = HERE
    user: User = None
    password_file: PasswordFile = None
    ca_file: CaFile = None

    def options(self) -> dict[str, str]:
        """The same as options of `format("penstock")`; asks for the password if there is someone to ask.

        Raises:
            typer.BadParameter: the flags do not go together, or there is no password.
            InvalidConfig: a file cannot be read.
        """
        from penstock.client.address import Address as Parsed  # noqa: PLC0415 - the client takes a while

        if self.password_file is not None and self.user is None:
            raise typer.BadParameter("--password-file needs --user")
        try:
            scheme = Parsed.parse(self.address).scheme
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if self.ca_file is not None and scheme != "https":
            raise typer.BadParameter("--ca-file needs an --address with https")
        wanted = {
            "address": self.address,
            "user": self.user,
            "password": self._password(),
            "caFile": self._trusted(),
        }
        return {name: value for name, value in wanted.items() if value is not None}

    def _password(self) -> str | None:
        if self.password_file is not None:
            return first_line(self.password_file)
        if self.user is None:
            return None
        if not sys.stdin.isatty():
            raise typer.BadParameter(
                "--user needs --password-file where nobody can be asked for the password"
            )
        return str(typer.prompt("Password", hide_input=True, err=True))

    def _trusted(self) -> str | None:
        """The file of certificates with its whole path, as workers may run elsewhere on this machine."""
        if self.ca_file is None:
            return None
        trusting(self.ca_file)  # or else only the workers would notice what is wrong with it
        return str(self.ca_file.resolve())


class SparkFlags(Group, frozen=True, kw_only=True):
    """Where Spark runs, and how."""

    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="Where Spark runs, such as spark://host:7077. Default: local[*], or what spark-submit says.",
            rich_help_panel="Spark",
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf",
            metavar="NAME=VALUE",
            help="A setting of Spark, such as spark.driver.memory=4g; may be repeated.",
            rich_help_panel="Spark",
        ),
    ] = None
    spark_log: Annotated[
        Path | None,
        typer.Option(
            "--spark-log",
            metavar="FILE",
            help="Append Spark's own log to a file; --conf spark.log.level=INFO makes it talk more.",
            rich_help_panel="Spark",
        ),
    ] = None

    def settings(self) -> dict[str, str]:
        """The settings that were given by name.

        Raises:
            typer.BadParameter: one of them is not a name and a value.
        """
        pairs = [each.partition("=") for each in self.conf or ()]
        for name, sign, _ in pairs:
            if not sign or not name.startswith("spark."):
                raise typer.BadParameter(f"--conf takes spark.NAME=VALUE, not {name + sign!r}")
        return {name: value for name, _, value in pairs}
