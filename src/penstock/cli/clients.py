"""`penstock clients`: who is known to a server, connected or not; and the end of a connection."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.completing import complete_client
from penstock.cli.flags import spread
from penstock.cli.http import HttpServer, Limit, run
from penstock.cli.output import Output, OutputOption
from penstock.cli.tables import print_facts, print_rows

if TYPE_CHECKING:
    from penstock.client import HttpClient

COLUMNS = (
    "client_id",
    "user",
    "door",
    "connected",
    "subscriptions",
    "waiting_messages",
    "owed_messages",
    "is_slow",
)


@spread
def clients(
    client_id: Annotated[
        str | None,
        typer.Argument(
            metavar="CLIENT",
            help="Only this one, with everything that is known.",
            autocompletion=complete_client,
        ),
    ] = None,
    *,
    disconnect: Annotated[
        bool, typer.Option("--disconnect", help="End the connection of CLIENT; its session stays.")
    ] = False,
    search: Annotated[
        str | None, typer.Option("--search", metavar="TEXT", help="Only ids that hold this text.")
    ] = None,
    connected: Annotated[
        bool | None, typer.Option("--connected/--absent", help="Only those that are connected, or are not.")
    ] = None,
    limit: Limit = None,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the clients that a server knows, by id, or tell about one."""
    if client_id is not None and (search, connected, limit) != (None, None, None):
        raise typer.BadParameter("a CLIENT is one alone; leave out --search, --connected and --limit")
    if disconnect and client_id is None:
        raise typer.BadParameter("--disconnect needs a CLIENT")

    def work(client: "HttpClient") -> None:
        if client_id is None:
            found = islice(client.clients(search, connected), limit)
            print_rows(found, COLUMNS, output, "There is no such client.")
        elif disconnect:
            was_connected = client.disconnect(client_id)
            print_facts({"client_id": client_id, "disconnected": was_connected}, output)
        else:
            print_facts(client.client(client_id), output)

    run(server, work)
