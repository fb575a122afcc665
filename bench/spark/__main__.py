"""Spark integration beside what Spark itself would do in its place, as ratios of the same minutes.

    python -m bench.spark [--rows 1000000] [--rounds 3] [--only connector,archive] [--out FILE.json]

A server with a log of that many rows runs on the first core, and Spark on all of them. Both sides of a pair
take turns, another one first in each round; the result is the ratio of their medians. Exits with 1 if
something could not be measured. A missed goal is printed and does not change the exit status.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from bench.errors import BenchError
from bench.report.machine import Machine, describe_machine
from bench.report.summary import NOISY_SPREAD
from bench.report.tables import number_text
from bench.scenarios import Goal
from bench.spark.pairs import PAIRS, Pair
from bench.spark.site import TAIL_ROWS, Site, serving
from penstock.errors import PenstockError
from penstock.spark.session import session

OURS = "penstock"
LEAST_ROWS = 2 * TAIL_ROWS
RESULTS = Path(__file__).parents[1] / "results"


class Side(Struct):
    """All runs of one side of a pair."""

    runs: list[float] = []
    value: float | None = None
    """Their median."""
    spread: float | None = None
    """(max - min) / median."""

    def add(self, run: float) -> None:
        """Add a run."""
        self.runs.append(run)
        self.value = median(self.runs)
        self.spread = (max(self.runs) - min(self.runs)) / self.value


class Row(Struct, kw_only=True):
    """Result of a pair."""

    name: str
    text: str
    unit: str
    goal: Goal
    sides: dict[str, Side]
    ratio: float | None = None
    is_met: bool | None = None
    failure: str | None = None


class Result(Struct, kw_only=True):
    """A whole bench: machine, options, pairs and every run behind them."""

    when: str
    machine: Machine
    versions: dict[str, str]
    rows: int
    rounds: int
    pairs: list[Row]


def main() -> int:
    """Measure, print and write; returns the exit status."""
    options = parse(sys.argv[1:])
    out = options.out or RESULTS / time.strftime("%Y-%m-%d-spark.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    pairs = [pair for pair in PAIRS if not options.only or pair.name in options.only]
    with tempfile.TemporaryDirectory(prefix="spark-", dir=out.parent) as folder:
        result = Result(
            when=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            machine=describe_machine(Path(folder)),
            versions={name: metadata.version(name) for name in ("penstock", "pyspark", "pyarrow")},
            rows=options.rows,
            rounds=options.rounds,
            pairs=[],
        )
        for row in measure(pairs, options, Path(folder)):
            result.pairs.append(row)
            print(format_row(row), flush=True)
    out.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    print(f"written to {out}")
    return 1 if any(row.failure for row in result.pairs) else 0


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description="Penstock's Spark integration beside Spark's own sources and sinks."
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows in the log")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side, after one for warm-up")
    parser.add_argument(
        "--only", type=_names, default=(), help=f"comma list of {', '.join(pair.name for pair in PAIRS)}"
    )
    parser.add_argument("--master", default="local[*]", help="where Spark runs")
    parser.add_argument("--out", type=Path, help="the file of the result")
    options = parser.parse_args(words)
    if options.rows < LEAST_ROWS or options.rounds < 1:
        parser.error(f"--rows has to be at least {LEAST_ROWS:,}, --rounds at least 1")
    return options


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    known = {pair.name for pair in PAIRS}
    if wrong := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"unknown pair {wrong[0]!r}; known are {', '.join(sorted(known))}")
    return names


def measure(pairs: Sequence[Pair], options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Measure the pairs in order, on the same server and in the same session."""
    print(f"making a log of {options.rows:,} rows", flush=True)
    with serving(folder, options.rows) as server, session("bench", options.master) as spark:
        site = Site(folder, server, spark, options.rows)
        for pair in pairs:
            row = Row(
                name=pair.name,
                text=pair.text,
                unit=pair.unit,
                goal=pair.goal,
                sides={OURS: Side(), pair.other_name: Side()},
            )
            try:
                take_turns(pair, site, options.rounds, row)
            except (BenchError, PenstockError) as error:
                row.failure = f"{type(error).__name__}: {error}"
            yield row


def take_turns(pair: Pair, site: Site, rounds: int, row: Row) -> None:
    """Run both sides in turn, another one first in each round; the first round is warm-up."""
    ways = {OURS: pair.ours, pair.other_name: pair.other}
    for number in range(rounds + 1):
        for name in ways if number % 2 else reversed(ways):
            found = ways[name](site)
            if number:
                row.sides[name].add(found)
                print(f"  {pair.name} {number}/{rounds} {name}: {number_text(found)} {pair.unit}", flush=True)
    ours, other = row.sides[OURS].value, row.sides[pair.other_name].value
    assert ours
    assert other
    row.ratio = ours / other
    row.is_met = pair.goal.holds(row.ratio)


def format_row(row: Row) -> str:
    """Format a row as a line of text."""
    if row.failure is not None:
        return f"{row.name}: FAILED, {row.failure}"
    sides = " against ".join(
        f"{number_text(side.value or 0.0)} {row.unit} ({name})" for name, side in row.sides.items()
    )
    verdict = "yes" if row.is_met else "NO"
    noise = max(side.spread or 0.0 for side in row.sides.values())
    warning = f"; runs differ by {noise:.0%}, repeat before quoting" if noise > NOISY_SPREAD else ""
    goal = f"goal {row.goal.sign} {row.goal.limit}: {verdict}"
    return f"{row.name}: {sides}, ratio {row.ratio:.2f}, {goal}{warning}"


if __name__ == "__main__":
    sys.exit(main())
