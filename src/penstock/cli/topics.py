"""`penstock topics`: which topics a server has, and what is known of one."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.completing import complete_topic
from penstock.cli.flags import spread
from penstock.cli.http import HttpServer, Limit, run
from penstock.cli.output import Output, OutputOption
from penstock.cli.tables import print_facts, print_rows
from penstock.cli.text import plain
from penstock.cli.units import moment_text

if TYPE_CHECKING:
    from penstock.client import HttpClient, Message

COLUMNS = ("name", "sequence", "published", "subscribers", "retained", "ring_messages", "kept")
RETAINED_COLUMNS = ("topic", "sequence", "published_at", "content_type", "payload")


@spread
def topics(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="Only these; of one alone everything that is known.",
            autocompletion=complete_topic,
        ),
    ] = None,
    *,
    search: Annotated[
        str | None, typer.Option("--search", metavar="TEXT", help="Only names that hold this text.")
    ] = None,
    filter: Annotated[
        str | None, typer.Option("--filter", metavar="FILTER", help="Only names that match.")
    ] = None,
    retained: Annotated[
        bool, typer.Option("--retained", help="List the retained messages instead of the topics.")
    ] = False,
    limit: Limit = None,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the topics of a server by name, or tell about some of them."""
    if names and (search, filter, limit, retained) != (None, None, None, False):
        raise typer.BadParameter("a TOPIC is named or looked for; leave out the other flags")
    if retained and search is not None:
        raise typer.BadParameter("--retained takes a --filter, and no --search")

    def work(client: "HttpClient") -> None:
        if names:
            _tell(client, names, output)
        elif retained:
            messages = islice(client.retained(filter), limit)
            print_rows(map(_facts_of, messages), RETAINED_COLUMNS, output, "There is no retained message.")
        else:
            found = islice(client.topics(search, filter), limit)
            print_rows(found, COLUMNS, output, "There is no such topic.")

    run(server, work)


def _tell(client: "HttpClient", names: Sequence[str], output: Output) -> None:
    """Everything about one topic, or a line for each of several; ends with 1 if one is not there."""
    found = list(_find(client, names))
    if len(names) == 1 and found:
        figures = client.metrics(names)["topics"].get(names[0], {})
        print_facts({**found[0], **figures}, output)
    elif found:
        print_rows(found, COLUMNS, output, "")
    missing = [name for name in names if name not in {topic["name"] for topic in found}]
    for name in missing:
        typer.echo(f"error: there is no topic {name!r}; `penstock topics` lists those there are", err=True)
    if missing:
        raise typer.Exit(1)


def _find(client: "HttpClient", names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        yield from (topic for topic in client.topics(filter=name) if topic["name"] == name)


def _facts_of(message: "Message") -> dict[str, Any]:
    """A retained message in plain values, as the messages of `penstock sub` have them."""
    return {
        "topic": message.topic,
        "sequence": message.sequence,
        "published_at": moment_text(message.published_at, "milliseconds"),
        "qos": message.qos,
        "content_type": message.content_type,
        "payload": plain(message.payload),
        "client_id": message.client_id,
        "door": message.door,
        "cursor": message.cursor,
    }
