"""Flags that the commands of `penstock pipeline` share: lake, server and Spark.

A command is one function. Spark is imported in its function `load`, which runs after the check that Spark is
installed:

    @spread
    def archive(
        lake: Lake,
        *,
        server: ServerOptions,
        batch_rows: Annotated[int, typer.Option(min=1, help="Rows of a batch.")] = 1_000_000,
        spark: SparkFlags,
        output: OutputOption = Output.TEXT,
    ) -> None:
        '''Copy the log into a lake.'''

        def load() -> Job:
            from penstock.spark.jobs.archive import ArchiveOptions, archive  # noqa: PLC0415 - Spark

            return partial(archive, ArchiveOptions(lake=lake, server=server.options(), batch_rows=batch_rows))

        run_job("archive", load, spark, output)

The job itself is in `penstock.spark.jobs.archive`:

    def archive(
        options: ArchiveOptions, *, spark: SparkSession, progress: Progress, stopping: threading.Event
    ) -> Report: ...
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.connect import OWN_PORTS
from penstock.cli.flags import (
    HOST,
    Group,
    PasswordFile,
    User,
    duration_option,
    read_password_file,
    trust_file,
)

HERE = f"http://{HOST}:{OWN_PORTS['http']}"
BATCH_ROWS = 2_000_000
BATCH_BYTES = 256 << 20
INTERVAL_S = 10.0
HOLD_LAPSE_S = 259_200.0

Lake = Annotated[
    str, typer.Option("--lake", metavar="FOLDER", help="The lake: a folder that all machines of Spark see.")
]
Address = Annotated[str, typer.Option("--address", metavar="URL", help="Address of the server's HTTP port.")]
BatchRows = Annotated[int, typer.Option("--batch-rows", min=1, metavar="COUNT", help="Most rows of a batch.")]
BatchBytes = Annotated[
    int,
    typer.Option(
        "--batch-bytes", min=1, metavar="BYTES", help="Approximate bytes of a batch, as stored in the log."
    ),
]
Follow = Annotated[bool, typer.Option("--follow", help="Continue until SIGTERM or Ctrl-C.")]
Interval = Annotated[
    float,
    duration_option(
        "--interval", "With --follow: time between two polls of the log.", least=0.1, default=INTERVAL_S
    ),
]
HoldLapse = Annotated[
    float,
    duration_option(
        "--hold-lapse",
        "Time after which a hold lapses unless a run renews it.",
        least=1,
        default=HOLD_LAPSE_S,
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file", metavar="FILE", help="With https: trust these CA certificates (PEM), not the system's."
    ),
]


class ServerOptions(Group, frozen=True, kw_only=True):
    """Flags of the server that a job reads."""

    address: Address = HERE
    user: User = None
    password_file: PasswordFile = None
    ca_file: CaFile = None

    def options(self) -> dict[str, str]:
        """The options of `format("penstock")`; prompts for the password on a terminal.

        Raises:
            typer.BadParameter: the flags contradict each other, or there is no password.
            InvalidConfig: a file cannot be read.
        """
        from penstock.client.address import Address as Parsed  # noqa: PLC0415 - the client takes a while

        if self.password_file is not None and self.user is None:
            raise typer.BadParameter("--password-file needs --user")
        address = self.address if "://" in self.address else f"http://{self.address}"
        try:
            scheme = Parsed.parse(address).scheme
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if self.ca_file is not None and scheme != "https":
            raise typer.BadParameter("--ca-file needs an --address with https")
        wanted = {
            "address": address,
            "user": self.user,
            "password": self._password(),
            "caFile": self._trusted(),
        }
        return {name: value for name, value in wanted.items() if value is not None}

    def _password(self) -> str | None:
        if self.password_file is not None:
            return read_password_file(self.password_file)
        if self.user is None:
            return None
        if not sys.stdin.isatty():
            raise typer.BadParameter(
                "--user needs --password-file where there is no terminal to ask for the password"
            )
        return str(typer.prompt("Password", hide_input=True, err=True))

    def _trusted(self) -> str | None:
        """The absolute path of the CA file: workers may run in another folder."""
        if self.ca_file is None:
            return None
        trust_file(self.ca_file)  # otherwise only the workers would report an invalid file
        return str(self.ca_file.resolve())


class SparkFlags(Group, frozen=True, kw_only=True):
    """Flags of the Spark session."""

    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="Master URL of Spark (spark://host:7077). Default: local[*], or that of spark-submit.",
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
            help="Append Spark's own log to a file; --conf spark.log.level=INFO adds details.",
            rich_help_panel="Spark",
        ),
    ] = None

    def settings(self) -> dict[str, str]:
        """The settings of `--conf`.

        Raises:
            typer.BadParameter: one of them is not a name and a value.
        """
        pairs = [each.partition("=") for each in self.conf or ()]
        for name, sign, _ in pairs:
            if not sign or not name.startswith("spark."):
                raise typer.BadParameter(f"--conf takes spark.NAME=VALUE, not {name + sign!r}")
        return {name: value for name, _, value in pairs}
