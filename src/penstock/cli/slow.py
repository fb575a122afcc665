"""`penstock slow`: who cannot keep up, or could not until a while ago."""

from typing import TYPE_CHECKING

from penstock.cli.flags import spread
from penstock.cli.http import HttpServer, run
from penstock.cli.output import Output, OutputOption
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


@spread
def slow(
    *,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the subscribers that are slow, or were until a while ago."""

    def work(client: "HttpClient") -> None:
        print_rows(client.slow(), COLUMNS, output, "Nobody is slow, and nobody was of late.")

    run(server, work)
