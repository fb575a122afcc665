"""`penstock why`: what became of a message."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection import Host, Output, OutputOption, Password, PasswordFile, User
from penstock.cli.http import HTTP_PORT, CaFile, HttpPort, HttpTarget, Tls, run
from penstock.cli.tables import print_facts

if TYPE_CHECKING:
    from penstock.client import HttpClient


def why(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its topic.")],
    sequence: Annotated[int, typer.Argument(metavar="SEQUENCE", min=1, help="Its number in that topic.")],
    *,
    client_id: Annotated[
        str | None, typer.Option("--client", metavar="CLIENT", help="Who should have got it.")
    ] = None,
    host: Host = "127.0.0.1",
    port: HttpPort = HTTP_PORT,
    user: User = None,
    password: Password = None,
    password_file: PasswordFile = None,
    tls: Tls = False,
    ca_file: CaFile = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say why a message was not delivered, to one client or to anybody."""

    def work(client: "HttpClient") -> None:
        print_facts(client.why(topic, sequence, client_id), output)

    run(HttpTarget(host, port, user, password, password_file, tls, ca_file), work)
