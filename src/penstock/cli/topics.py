"""`penstock topics`: which topics a server has."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection import Host, Output, OutputOption, Password, PasswordFile, User
from penstock.cli.http import HTTP_PORT, CaFile, HttpPort, HttpTarget, Limit, Tls, run
from penstock.cli.tables import print_rows

if TYPE_CHECKING:
    from penstock.client import HttpClient

COLUMNS = ("name", "sequence", "published", "subscribers", "retained", "ring_messages", "kept")


def topics(
    *,
    search: Annotated[str | None, typer.Option("--search", help="Only names that hold this text.")] = None,
    filter: Annotated[str | None, typer.Option("--filter", help="Only names that match.")] = None,
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
    """List the topics of a server by name."""

    def work(client: "HttpClient") -> None:
        found = islice(client.topics(search, filter), limit)
        print_rows(found, COLUMNS, output, "There is no such topic.")

    run(HttpTarget(host, port, user, password, password_file, tls, ca_file), work)
