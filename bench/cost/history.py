"""History of costs: one JSON line for each saved run, and the comparison with the last one like it."""

import subprocess
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.cost.cases import Figure
from bench.errors import BenchError
from bench.report.machine import build_of_server, cpu_model, python_version

RESULTS = Path(__file__).parents[1] / "results" / "cost.jsonl"
CHECKOUT = Path(__file__).parents[2]


class Entry(Struct, frozen=True, kw_only=True):
    """One run: when, of which server, on which machine, and its figures by case."""

    when: str
    commit: str
    """Abbreviated, with `-dirty` if files were changed; empty outside a checkout."""
    build: str
    python: str
    cpu_model: str
    rounds: int
    messages: int
    figures: dict[str, Figure]


def make_entry(figures: dict[str, Figure], rounds: int, messages: int) -> Entry:
    """Entry of a run that was made now, here."""
    return Entry(
        when=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        commit=_commit(),
        build=build_of_server(),
        python=python_version(),
        cpu_model=cpu_model(),
        rounds=rounds,
        messages=messages,
        figures=figures,
    )


def append(entry: Entry, path: Path) -> None:
    """Append an entry to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(entry) + b"\n")


def last_like(entry: Entry, path: Path) -> Entry | None:
    """Newest entry of a file with the same build on the same model of CPU; None without one.

    Raises:
        BenchError: the file has a line that is not an entry.
    """
    if not path.exists():
        return None
    for number, line in reversed(list(enumerate(path.read_bytes().splitlines(), 1))):
        try:
            found = msgspec.json.decode(line, type=Entry)
        except msgspec.DecodeError as error:
            raise BenchError(f"{path}, line {number}: {error}; remove it or use another --results") from None
        if (found.build, found.cpu_model) == (entry.build, entry.cpu_model):
            return found
    return None


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"],  # noqa: S607 - the user's git
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()
