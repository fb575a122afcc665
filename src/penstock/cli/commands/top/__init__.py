"""`penstock top`: live view of a server: rates, topics, slow subscribers and undelivered messages."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.commands.top.view import Order
from penstock.cli.connect import HttpServer, run_http
from penstock.cli.flags import duration_option, spread
from penstock.cli.output import Output, OutputOption
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import HttpClient

__all__ = ["top"]

TOPICS_IN_TEXT = 20
INTERVAL_S = 1.0


@spread
def top(
    *,
    interval: Annotated[
        float, duration_option("--interval", "Time between two readings.", least=0.1, default=INTERVAL_S)
    ] = INTERVAL_S,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, metavar="COUNT", help="End after this many readings."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Write one reading as text, and end.")] = False,
    sort: Annotated[Order, typer.Option("--sort", help="Sort order of the topics.")] = Order.PUBLISHED,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="COUNT", help="Most topics in text and JSON.")
    ] = TOPICS_IN_TEXT,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """Watch a server at work: rates, topics, slow subscribers, and what was not delivered.

    On a terminal this is a live view, until q or Ctrl-C; arrows and s sort, space pauses it. Elsewhere, and
    with --once or -o json, each reading is written by itself.
    """
    if once and count is not None:
        raise typer.BadParameter("--once is --count 1 as text; give one of them")
    is_live = sys.stdout.isatty() and output is Output.TEXT and not once

    def work(client: "HttpClient") -> None:
        from penstock.cli.commands.top.watch import Watch, Writer  # noqa: PLC0415 - it imports the client

        watch, address, readings = Watch(client, interval), str(server.endpoint), 1 if once else count
        first = watch.read()  # an error at the first reading ends the command
        if is_live:
            from penstock.cli.commands.top.live import show_live  # noqa: PLC0415 - only on a terminal

            show_live(watch, first, address, sort, explain, count=readings)
        else:
            writer = Writer(
                output=output, address=address, order=sort, limit=limit, count=readings, explain=explain
            )
            writer.write(watch.readings())

    def explain(error: PenstockError) -> str:
        from penstock.cli.errors import explain_http  # noqa: PLC0415 - it imports the client

        return explain_http(error, server, server.endpoint)

    run_http(server, work, interrupted=0)
