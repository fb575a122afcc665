"""Command line of the cost view: `python -m bench.cost`."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import structlog
import typer

from bench.cost.cases import CASES, Figure, choose_cases, measure
from bench.cost.history import RESULTS, Entry, append, last_like, make_entry
from bench.errors import BenchError, WrongOption
from penstock.cli.output import Output, OutputOption
from penstock.errors import InvalidConfig
from penstock.extras import require_extra

SLOWER = 1.10
"""Ratio to the last run from which a row is marked."""
HEADER = ("case", "best us", "median us", "to last", "per", "stages of the best round, us")


def main(
    *,
    case: Annotated[str, typer.Option(help=f"Comma list of {', '.join(CASES)}; or `all`.")] = "all",
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds of each case.")] = 15,
    messages: Annotated[
        int, typer.Option(min=1, help="Messages of a round; expensive cases take a share.")
    ] = 20_000,
    save: Annotated[bool, typer.Option("--save", help="Append the figures to --results.")] = False,
    results: Annotated[Path, typer.Option(help="File of saved runs, one JSON line each.")] = RESULTS,
    output: OutputOption = Output.TEXT,
) -> None:
    """Measure the CPU time that the server itself spends on a message, without sockets."""
    # Connections that open and close are not news here.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        entry = _measure(case, rounds, messages)
        last = last_like(entry, results)
        if save:
            append(entry, results)
    except WrongOption as error:
        raise typer.BadParameter(str(error)) from error
    except BenchError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    if output is Output.JSON:
        sys.stdout.write(msgspec.json.encode(entry).decode() + "\n")
    else:
        sys.stdout.write("\n".join(_lines(entry, last)) + "\n")


def _measure(names: str, rounds: int, messages: int) -> Entry:
    cases = choose_cases(names)
    if any(case.is_on_disk for case in cases):
        try:
            require_extra("log", "the case with a data directory")
        except InvalidConfig as error:
            raise BenchError(str(error)) from error
    figures = {}
    for case in cases:
        print(f"  {case.name}: {case.summary}", file=sys.stderr, flush=True)
        figures[case.name] = measure(case, messages, rounds)
    return make_entry(figures, rounds, messages)


def _lines(entry: Entry, last: Entry | None) -> list[str]:
    """Table as Markdown, below what it is of."""
    compared = "no saved run of this build and CPU"
    if last is not None:
        compared = f"compared with {last.when}, commit {last.commit or 'unknown'}"
    rows = [_row(name, figure, last) for name, figure in entry.figures.items()]
    made = f"{entry.build}, {entry.python}, {entry.cpu_model}"
    return [
        f"- {entry.when}, commit {entry.commit or 'unknown'}, {made}",
        f"- CPU time per message, {entry.rounds} rounds; {compared}",
        "",
        _line(HEADER),
        "| --- | ---: | ---: | ---: | --- | --- |",
        *map(_line, rows),
    ]


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(name: str, figure: Figure, last: Entry | None) -> tuple[str, ...]:
    before = None if last is None else last.figures.get(name)
    stages = ", ".join(f"{stage} {took:.2f}" for stage, took in figure.stages.items())
    return (
        name,
        f"{figure.best_us:.2f}",
        f"{figure.median_us:.2f}",
        "-" if before is None else _ratio(figure.best_us / before.best_us),
        CASES[name].unit,
        stages or "-",
    )


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}x SLOWER" if ratio >= SLOWER else f"{ratio:.2f}x"


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app(prog_name="python -m bench.cost")
