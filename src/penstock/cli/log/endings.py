"""How a read ends: the statement of what was served and what is missing, and the exit status."""

import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import typer

from penstock.cli.output import Output
from penstock.core.ports import Gap
from penstock.core.statement import Missing, Statement

INCOMPLETE = 3
"""The exit status when something that was asked for is missing."""


def end(statement: Statement, output: Output) -> None:
    """Write the statement to standard error, and end with 3 if something is missing."""
    sys.stdout.flush()
    text = as_json(statement) if output is Output.JSON else "\n".join(as_text(statement))
    typer.echo(text, err=True)
    if not statement.is_complete:
        raise typer.Exit(INCOMPLETE)


def as_text(statement: Statement) -> Iterator[str]:
    """A line on what was served, and one for everything that is missing."""
    place = "the log ends here" if statement.is_at_head else "the log goes on"
    yield f"served {counted(statement.served, 'message')}; {place}: --after {statement.next.encode()}"
    for gap in statement.gaps:
        yield f"missing: {offsets_of(gap)}: {gap.reason}"
    for missing in statement.missing:
        yield f"missing: {missing.topic} {_sequences_of(missing)}: {missing.reason}"


def as_json(statement: Statement) -> str:
    """The same for programs: one object."""
    return msgspec.json.encode(facts_of(statement)).decode()


def facts_of(statement: Statement) -> dict[str, Any]:
    """What a statement says, in plain values."""
    return {
        "served": statement.served,
        "after": None if statement.after is None else statement.after.encode(),
        "next": statement.next.encode(),
        "is_at_head": statement.is_at_head,
        "gaps": statement.gaps,
        "missing": statement.missing,
    }


def offsets_of(gap: Gap) -> str:
    """Which offsets those are, in words."""
    if gap.first == gap.last:
        return f"offset {gap.first}"
    return f"offsets {gap.first} to {gap.last} ({gap.last - gap.first + 1:,})"


def _sequences_of(missing: Missing) -> str:
    if missing.first is None:
        return f"sequences up to {missing.last}"
    if missing.first == missing.last:
        return f"sequence {missing.last}"
    return f"sequences {missing.first} to {missing.last}"


def counted(count: int, noun: str, ending: str = "s") -> str:
    """A number of things."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{ending}"
