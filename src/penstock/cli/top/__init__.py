"""`penstock top`: a server at work, as it changes."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.flags import spread
from penstock.cli.http import HttpServer, run
from penstock.cli.output import Output, OutputOption
from penstock.cli.top.order import Order
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import HttpClient

__all__ = ["top"]

TOPICS_IN_TEXT = 20


@spread
def top(
    *,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="From one look to the next.")
    ] = 1.0,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, metavar="COUNT", help="End after so many looks.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, and write it as text.")] = False,
    sort: Annotated[Order, typer.Option("--sort", help="What the topics are sorted by.")] = Order.PUBLISHED,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="COUNT", help="How many topics text and JSON have.")
    ] = TOPICS_IN_TEXT,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """Watch a server at work: rates, topics, slow subscribers, and what was not delivered.

    On a terminal it is a view that changes, until q or Ctrl-C; arrows and s sort, space holds it. Elsewhere,
    and with --once or -o json, each look is written by itself.
    """
    if once and count is not None:
        raise typer.BadParameter("--once is --count 1 as text; give one of them")
    is_live = sys.stdout.isatty() and output is Output.TEXT and not once

    def work(client: "HttpClient") -> None:
        from penstock.cli.top.live import show_live  # noqa: PLC0415 - they import the client
        from penstock.cli.top.plain import Writer  # noqa: PLC0415
        from penstock.cli.top.watch import Watch  # noqa: PLC0415

        watch, address, looks = Watch(client, interval), str(server.place), 1 if once else count
        first = watch.look()  # a server that was never there is none that is away
        if is_live:
            show_live(watch, first, address, sort, explain, count=looks)
        else:
            writer = Writer(
                output=output, address=address, order=sort, limit=limit, count=looks, explain=explain
            )
            writer.write(watch.looks())

    def explain(error: PenstockError) -> str:
        from penstock.cli.trouble import explain_http  # noqa: PLC0415 - it imports the client

        return explain_http(error, server, server.place)

    run(server, work, interrupted=0)
