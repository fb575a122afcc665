"""`penstock health`: whether a server is there and well, for people and for whoever watches over it."""

from typing import TYPE_CHECKING

import typer

from penstock.cli.connection import Host, Output, OutputOption, Password, PasswordFile, User
from penstock.cli.http import HTTP_PORT, CaFile, HttpPort, HttpTarget, Tls, run
from penstock.cli.tables import print_facts

if TYPE_CHECKING:
    from penstock.client import HttpClient

HEALTHY = "healthy"


def health(
    *,
    host: Host = "127.0.0.1",
    port: HttpPort = HTTP_PORT,
    user: User = None,
    password: Password = None,
    password_file: PasswordFile = None,
    tls: Tls = False,
    ca_file: CaFile = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say how a server is; ends with 1 if it is not well, or not there."""

    def work(client: "HttpClient") -> None:
        state = client.health()
        print_facts(state, output)
        if state.get("status") != HEALTHY:
            raise typer.Exit(1)

    run(HttpTarget(host, port, user, password, password_file, tls, ca_file), work)
