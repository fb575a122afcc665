"""Views for whoever reads no terminal: facts as `name: value`, then a table for each kind of thing."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import typer
from msgspec import Struct

from penstock.cli.output import Output
from penstock.cli.tables import print_facts, print_json, print_rows
from penstock.cli.top.order import Order
from penstock.cli.top.view import View
from penstock.cli.top.watch import Away, Seen
from penstock.errors import PenstockError

TABLES = ("doors", "busiest", "slow", "not_delivered")
SLOW_COLUMNS = ("client_id", "is_slow", "waiting_messages", "waiting_bytes", "oldest_age_s", "dropped")


class Writer(Struct, frozen=True, kw_only=True):
    """How views are written, and how many."""

    output: Output
    address: str
    order: Order
    limit: int
    count: int | None
    explain: Callable[[PenstockError], str]

    def write(self, looks: Iterable[Seen | Away]) -> None:
        """Write what is seen; that the server is away is told once, until it is back."""
        written, is_away = 0, False
        for heard in looks:
            if isinstance(heard, Away):
                if not is_away:
                    typer.echo(f"The server is away, trying again: {self.explain(heard.error)}", err=True)
                is_away = True
                continue
            is_away = False
            print_view(heard.view(self.address, self.order), self.output, self.limit)
            written += 1
            if written == self.count:
                return


def print_view(view: View, output: Output, limit: int) -> None:
    """Write a view: JSON as one object a line, text in parts with empty lines between."""
    content = msgspec.to_builtins(view)
    content["busiest"] = content["busiest"][:limit]
    if output is Output.JSON:
        print_json([content])
    else:
        print_facts({name: value for name, value in content.items() if name not in TABLES}, output)
        for name in TABLES:
            _print_table(name, content[name])
        print()
    sys.stdout.flush()


def _print_table(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        print(f"\n{name}:")
        print_rows(rows, SLOW_COLUMNS if name == "slow" else list(rows[0]), Output.TEXT, "")
