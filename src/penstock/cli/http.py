"""What the commands that ask a server over HTTP have in common.

The client is imported inside functions: `penstock --help`, which looks at all commands, need not wait for it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection import PANEL, ServerFlags
from penstock.cli.output import INTERRUPTED
from penstock.cli.places import OWN_PORTS, Place, find_place
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import HttpClient

Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="COUNT", help="End after so many.")]


class HttpServer(ServerFlags, frozen=True, kw_only=True):
    """A server's HTTP port, and who asks there."""

    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            "-p",
            min=1,
            max=65535,
            metavar="PORT",
            help=f"Its HTTP port; default: {OWN_PORTS['http']}, with --tls {OWN_PORTS['https']}.",
            rich_help_panel=PANEL,
        ),
    ] = None

    @property
    def place(self) -> Place:
        """Where that is."""
        return find_place(self, ("http", "https"))

    def connect(self, place: Place) -> "HttpClient":
        """A client of this server; whether it is there shows with the first request."""
        from penstock.client import HttpClient  # noqa: PLC0415

        tls = self.trusted(place.is_secure)
        try:
            return HttpClient(
                str(place), self.user, self.find_password(), timeout=self.connect_timeout, tls=tls
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None


def run(server: HttpServer, work: "Callable[[HttpClient], None]", *, interrupted: int = INTERRUPTED) -> None:
    """Do the work to its end; a failure becomes one line and exit code 1.

    Args:
        interrupted: how Ctrl-C ends it.
    """
    server.check_who()
    place = server.place
    try:
        with server.connect(place) as client:
            work(client)
    except KeyboardInterrupt:
        raise typer.Exit(interrupted) from None
    except PenstockError as error:
        from penstock.cli.trouble import explain_http  # noqa: PLC0415 - it imports the client

        typer.echo(f"error: {' '.join(explain_http(error, server, place).split())}", err=True)
        raise typer.Exit(1) from None
