"""`penstock why`: what became of a message, and what was not delivered of late."""

import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.completing import complete_client, complete_topic
from penstock.cli.flags import spread
from penstock.cli.http import HttpServer, run
from penstock.cli.output import Output, OutputOption
from penstock.cli.tables import print_facts, print_rows
from penstock.model import Reason

if TYPE_CHECKING:
    from penstock.client import HttpClient

COLUMNS = ("last_at", "topic", "first", "last", "count", "client_id", "reason", "policy")


@spread
def why(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Its topic.", autocompletion=complete_topic)
    ] = None,
    sequence: Annotated[
        int | None, typer.Argument(metavar="SEQUENCE", min=1, help="Its number in that topic.")
    ] = None,
    *,
    of_topic: Annotated[
        str | None,
        typer.Option(
            "--topic", metavar="TOPIC", help="List: only of this topic.", autocompletion=complete_topic
        ),
    ] = None,
    client_id: Annotated[
        str | None,
        typer.Option(
            "--client",
            metavar="CLIENT",
            help="Who should have got it; also of a list.",
            autocompletion=complete_client,
        ),
    ] = None,
    reason: Annotated[
        Reason | None,
        typer.Option("--reason", metavar="REASON", help="List: only for this reason, such as outbox-full."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="COUNT", help="List: no more than so many.")
    ] = 50,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say why a message was not delivered, or list what was not delivered, the latest first.

    TOPIC and SEQUENCE name a message; without a sequence it is a list, of one topic or of all.
    """
    if topic is not None and of_topic is not None:
        raise typer.BadParameter("give the topic once")
    if sequence is not None and reason is not None:
        raise typer.BadParameter("--reason is for lists; leave out SEQUENCE")

    def work(client: "HttpClient") -> None:
        if topic is not None and sequence is not None:
            print_facts(client.why(topic, sequence, client_id), output)
            return
        drops = client.drops(topic or of_topic, client_id, reason)
        print_rows(islice(drops, limit), COLUMNS, output, "Nothing is recorded as not delivered.")
        if sys.stdout.isatty() and output is Output.TEXT and next(drops, None) is not None:
            typer.echo("There is more; see --limit.", err=True)

    run(server, work)
