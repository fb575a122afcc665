"""`penstock slow`: who cannot keep up, or could not until a while ago."""

from typing import TYPE_CHECKING

from penstock.cli.connection import Host, Output, OutputOption, Password, PasswordFile, User
from penstock.cli.http import HTTP_PORT, CaFile, HttpPort, HttpTarget, Tls, run
from penstock.cli.tables import print_rows

if TYPE_CHECKING:
    from penstock.client import HttpClient

COLUMNS = (
    "client_id",
    "is_slow",
    "connected",
    "waiting_messages",
    "waiting_bytes",
    "oldest_age_s",
    "dropped",
    "policy",
    "since",
    "last_slow_at",
)


def slow(
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
    """List the subscribers that are slow, or were until a while ago."""

    def work(client: "HttpClient") -> None:
        print_rows(client.slow(), COLUMNS, output, "Nobody is slow, and nobody was of late.")

    run(HttpTarget(host, port, user, password, password_file, tls, ca_file), work)
