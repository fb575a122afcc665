"""`penstock clients`: who is known to a server, connected or not."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection import Host, Output, OutputOption, Password, PasswordFile, User
from penstock.cli.http import HTTP_PORT, CaFile, HttpPort, HttpTarget, Limit, Tls, run
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


def clients(
    client_id: Annotated[
        str | None, typer.Argument(metavar="CLIENT", help="Only this one, with everything that is known.")
    ] = None,
    *,
    search: Annotated[str | None, typer.Option("--search", help="Only ids that hold this text.")] = None,
    connected: Annotated[
        bool | None, typer.Option("--connected/--absent", help="Only those that are connected, or are not.")
    ] = None,
    limit: Limit = None,
    host: Host = "127.0.0.1",
    port: HttpPort = HTTP_PORT,
    user: User = None,
    password: Password = None,
    password_file: PasswordFile = None,
    tls: Tls = False,
    ca_file: CaFile = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the clients that a server knows, by id."""
    if client_id is not None and (search, connected, limit) != (None, None, None):
        raise typer.BadParameter("a CLIENT is one alone; leave out --search, --connected and --limit")

    def work(client: "HttpClient") -> None:
        if client_id is not None:
            print_facts(client.client(client_id), output)
            return
        found = islice(client.clients(search, connected), limit)
        print_rows(found, COLUMNS, output, "There is no such client.")

    run(HttpTarget(host, port, user, password, password_file, tls, ca_file), work)
