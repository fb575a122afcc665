"""Command line of the bench: `python -m bench`."""

from pathlib import Path
from typing import Annotated

import typer

from bench.errors import BenchError, WrongOption
from bench.peers.recipes import PEERS
from bench.suite import Plan, run
from penstock.cli.output import Output, OutputOption


def main(
    *,
    scenario: Annotated[
        str,
        typer.Option(help="Comma list of scenarios, or `quick`, `goals` or `all` (a quarter of an hour)."),
    ] = "quick",
    peers: Annotated[
        str, typer.Option(help=f"Comma list of {', '.join(PEERS)}; or `none`.")
    ] = "mosquitto-debian,mosquitto,nats,nchan,grpcpp",
    repeat: Annotated[int, typer.Option(min=1, help="Rounds over all brokers; figures are medians.")] = 3,
    duration: Annotated[float, typer.Option(min=0.05, help="Measured seconds of each run.")] = 1.5,
    warm: Annotated[float, typer.Option(min=0.0, help="Unmeasured seconds before them.")] = 0.4,
    scale: Annotated[
        float,
        typer.Option(min=0.001, max=1.0, help="Share of the full counts in scenarios about the log."),
    ] = 1.0,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SCHEME://HOST:PORT", help="A broker that already runs on loopback; repeatable."
        ),
    ] = None,
    penstock: Annotated[
        bool, typer.Option("--penstock/--no-penstock", help="Start Penstock itself, or not.")
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(help="Raw JSON; default: bench/results/<date>.json, or here without a bench folder."),
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the tables here as Markdown.")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Measure Penstock against other brokers: same machine, same load, same minute.

    Exits with 1 when a run failed: a message lost, doubled or out of order, or a broker that gave up.
    """
    plan = Plan(
        scenarios=scenario,
        peers=peers,
        repeat=repeat,
        duration_s=duration,
        warm_s=warm,
        scale=scale,
        targets=tuple(target or ()),
        with_penstock=penstock,
        out=out,
        markdown=markdown,
        as_json=output is Output.JSON,
    )
    try:
        all_counted = run(plan)
    except WrongOption as error:
        raise typer.BadParameter(str(error)) from error
    except BenchError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    if not all_counted:
        raise typer.Exit(1)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app(prog_name="python -m bench")
