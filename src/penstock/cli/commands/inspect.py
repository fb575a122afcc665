"""Commands that query a running server over HTTP: `topics`, `clients`, `slow`, `why` and `health`."""

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import views
from penstock.cli.connect import HttpServer, Limit, complete_client, complete_topic, run_http
from penstock.cli.flags import spread
from penstock.cli.output import (
    Output,
    OutputOption,
    draw_rows,
    json_value,
    one_line,
    print_facts,
    print_pairs,
    print_rows,
)
from penstock.common.text import moment_text
from penstock.model import Reason

if TYPE_CHECKING:
    from penstock.client import HttpClient, Message

TOPIC_COLUMNS = ("name", "sequence", "published", "subscribers", "retained", "ring_messages", "kept")
RETAINED_COLUMNS = ("topic", "sequence", "published_at", "content_type", "payload")
CLIENT_COLUMNS = (
    "client_id",
    "user",
    "door",
    "connected",
    "subscriptions",
    "waiting_messages",
    "owed_messages",
    "is_slow",
)
SLOW_COLUMNS = (
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
DROP_COLUMNS = ("last_at", "topic", "first", "last", "count", "client_id", "reason", "policy")
HEALTHY = "healthy"
HEALTH_PARTS = ("global", "connections", "outboxes", "process", "rings")
"""Metrics that `health --all` prints."""


_STATES = {True: "connected", False: "disconnected", None: None}


@spread
def topics(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="Only these topics; all details if there is one.",
            autocompletion=complete_topic,
        ),
    ] = None,
    *,
    search: Annotated[
        str | None, typer.Option("--search", metavar="TEXT", help="Only names that contain this text.")
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
    """List the topics of a server by name, or show some of them."""
    if names and (search, filter, limit, retained) != (None, None, None, False):
        raise typer.BadParameter("a TOPIC is named or looked for; leave out the other flags")
    if retained and search is not None:
        raise typer.BadParameter("--retained takes a --filter, and no --search")

    def work(client: "HttpClient") -> None:
        if names:
            _show_topics(client, names, output)
        elif retained:
            messages = islice(client.retained(filter), limit)
            print_rows(
                map(_facts_of, messages),
                RETAINED_COLUMNS,
                output,
                "There is no retained message.",
                views.RETAINED,
            )
        else:
            found = islice(client.topics(search, filter), limit)
            nothing = _nothing("topic", search or filter)
            print_rows(found, TOPIC_COLUMNS, output, nothing, views.TOPICS)

    run_http(server, work)


@spread
def clients(
    client_id: Annotated[
        str | None,
        typer.Argument(
            metavar="CLIENT",
            help="Only this client, with all details.",
            autocompletion=complete_client,
        ),
    ] = None,
    *,
    disconnect: Annotated[
        bool, typer.Option("--disconnect", help="Disconnect CLIENT; its session is kept.")
    ] = False,
    end_session: Annotated[
        bool,
        typer.Option("--end-session", help="Disconnect CLIENT and end its session: its client id is free."),
    ] = False,
    search: Annotated[
        str | None, typer.Option("--search", metavar="TEXT", help="Only ids that contain this text.")
    ] = None,
    connected: Annotated[
        bool | None,
        typer.Option("--connected/--absent", help="Only connected clients, or only disconnected ones."),
    ] = None,
    limit: Limit = None,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the clients of a server by id, connected or not, or show one of them."""
    if client_id is not None and (search, connected, limit) != (None, None, None):
        raise typer.BadParameter("a CLIENT is one alone; leave out --search, --connected and --limit")
    if (disconnect or end_session) and client_id is None:
        raise typer.BadParameter("--disconnect and --end-session need a CLIENT")

    def work(client: "HttpClient") -> None:
        if client_id is None:
            found = islice(client.clients(search, connected), limit)
            nothing = _nothing("client", search, _STATES[connected])
            print_rows(found, CLIENT_COLUMNS, output, nothing, views.CLIENTS)
        elif disconnect or end_session:
            was_connected = client.disconnect(client_id, end_session=end_session)
            facts = {"client_id": client_id, "disconnected": was_connected}
            print_facts(facts | ({"session_ended": True} if end_session else {}), output)
        else:
            print_facts(client.client(client_id), output, views.client_facts)

    run_http(server, work)


@spread
def slow(
    *,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the subscribers that are slow, or were recently."""

    def work(client: "HttpClient") -> None:
        print_rows(client.slow(), SLOW_COLUMNS, output, "No slow subscribers, now or recently.", views.SLOW)

    run_http(server, work)


@spread
def why(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="Topic of the message.", autocompletion=complete_topic),
    ] = None,
    sequence: Annotated[
        int | None, typer.Argument(metavar="SEQUENCE", min=1, help="Its sequence in that topic.")
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
            help="The subscriber that did not receive it; also for a list.",
            autocompletion=complete_client,
        ),
    ] = None,
    reason: Annotated[
        Reason | None,
        typer.Option("--reason", metavar="REASON", help="List: only for this reason, such as outbox-full."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="COUNT", help="List: at most this many.")
    ] = 50,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """Explain why a message was not delivered, or list what was not delivered, the latest first.

    TOPIC and SEQUENCE name a message. Without SEQUENCE it is a list, of one topic or of all.
    """
    if topic is not None and of_topic is not None:
        raise typer.BadParameter("give the topic once")
    if sequence is not None and reason is not None:
        raise typer.BadParameter("--reason is for lists; leave out SEQUENCE")

    def work(client: "HttpClient") -> None:
        if topic is not None and sequence is not None:
            _show_verdict(client.why(topic, sequence, client_id), output)
            return
        drops = client.drops(topic or of_topic, client_id, reason)
        print_rows(
            islice(drops, limit), DROP_COLUMNS, output, "Nothing is recorded as not delivered.", views.LOSSES
        )
        if sys.stdout.isatty() and output is Output.TEXT and next(drops, None) is not None:
            typer.echo("There is more; see --limit.", err=True)

    run_http(server, work)


@spread
def health(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show metrics, memory, and the cluster.")
    ] = False,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the state of a server; ends with 1 if it is unhealthy or does not respond."""

    def work(client: "HttpClient") -> None:
        state = client.health()
        began = perf_counter()  # the connection is open by now, so that this is one round trip
        state["ready"] = client.ready()
        state["round_trip_ms"] = round((perf_counter() - began) * 1e3, 3)
        print_facts({**state, **_health_details(client)} if everything else state, output, views.health_facts)
        if state.get("status") != HEALTHY:
            raise typer.Exit(1)

    run_http(server, work)


def _show_topics(client: "HttpClient", names: Sequence[str], output: Output) -> None:
    """Print all details of one topic, or a line for each of several; exit with 1 if one is missing."""
    found = list(_find_topics(client, names))
    if len(names) == 1 and found:
        figures = client.metrics(names)["topics"].get(names[0], {})
        print_facts({**found[0], **figures}, output, views.topic_facts)
    elif found:
        print_rows(found, TOPIC_COLUMNS, output, "", views.TOPICS)
    missing = [name for name in names if name not in {topic["name"] for topic in found}]
    for name in missing:
        typer.echo(f"error: there is no topic {name!r}; `penstock topics` lists those there are", err=True)
    if missing:
        raise typer.Exit(1)


def _find_topics(client: "HttpClient", names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        yield from (topic for topic in client.topics(filter=name) if topic["name"] == name)


def _nothing(noun: str, wanted: str | None, state: str | None = None) -> str:
    """The text in place of an empty list: nothing matches, or there is nothing at all."""
    name = f"{state} {noun}" if state else noun
    return f"No {name}s match {wanted!r}." if wanted else f"The server has no {name}s now."


def _show_verdict(verdict: dict[str, Any], output: Output) -> None:
    """Print a verdict: its sentence first, then the facts that it rests on."""
    if output is Output.JSON:
        print_facts(verdict, output)
        return
    if not sys.stdout.isatty():
        print_facts({"text": verdict.get("text"), **verdict}, output)
        return
    print(f"{one_line(str(verdict.get('text', '')).encode())}\n")
    print_pairs(views.verdict_facts(verdict))
    if rows := verdict.get("rows"):
        print()
        draw_rows(rows, views.ROWS)


def _facts_of(message: "Message") -> dict[str, Any]:
    """A retained message with the same keys as in `penstock sub -o json`."""
    return {
        "topic": message.topic,
        "sequence": message.sequence,
        "published_at": moment_text(message.published_at, "milliseconds"),
        "qos": message.qos,
        "content_type": message.content_type,
        "payload": json_value(message.payload),
        "client_id": message.client_id,
        "door": message.door,
        "cursor": message.cursor,
    }


def _health_details(client: "HttpClient") -> dict[str, Any]:
    cluster = client.get("/cluster/status")
    figures = client.metrics(limit=0)
    peers = cluster["node_count"] - 1
    details = {"cluster": {"cluster_mode": cluster["cluster_mode"], "peers": peers}}
    return details | {part: figures[part] for part in HEALTH_PARTS if part in figures}
