"""`penstock health`: whether a server is there and well, for people and for whoever watches over it."""

from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.flags import spread
from penstock.cli.http import HttpServer, run
from penstock.cli.output import Output, OutputOption
from penstock.cli.tables import print_facts

if TYPE_CHECKING:
    from penstock.client import HttpClient

HEALTHY = "healthy"
PARTS = ("global", "connections", "outboxes", "process", "rings")
"""What of the figures is told with --all, apart from topics."""


@spread
def health(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also its figures, its memory, and the cluster it is part of.")
    ] = False,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say how a server is; ends with 1 if it is not well, or not there."""

    def work(client: "HttpClient") -> None:
        state = client.health()
        began = perf_counter()  # the connection stands by now, so that this is one question and its answer
        state["ready"] = client.ready()
        state["round_trip_ms"] = round((perf_counter() - began) * 1e3, 3)
        print_facts({**state, **_rest(client)} if everything else state, output)
        if state.get("status") != HEALTHY:
            raise typer.Exit(1)

    run(server, work)


def _rest(client: "HttpClient") -> dict[str, Any]:
    cluster = client.get("/cluster/status")
    figures = client.metrics(limit=0)
    peers = cluster["node_count"] - 1
    told = {"cluster": {"cluster_mode": cluster["cluster_mode"], "peers": peers}}
    return told | {part: figures[part] for part in PARTS if part in figures}
