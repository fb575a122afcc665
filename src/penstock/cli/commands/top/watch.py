"""Polling of a server for `penstock top`, and readings as text or JSON where there is no terminal.

Polling continues while the server is unavailable.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import typer
from msgspec import Struct

from penstock.cli.commands.top.view import Order, Sample, View, make_view
from penstock.cli.output import Output, print_facts, print_json, print_rows
from penstock.client.errors import ConnectionRefused, HttpRefused
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import HttpClient

SERVICE_UNAVAILABLE = 503
LISTED = 1_000
"""Most topics requested, the busiest first; ten thousand would cost the server time at each reading."""
TABLES = ("doors", "busiest", "slow", "not_delivered")
SLOW_COLUMNS = ("client_id", "is_slow", "waiting_messages", "waiting_bytes", "oldest_age_s", "dropped")


class Unavailable(Struct, frozen=True):
    """A failed poll; the next one may succeed."""

    error: PenstockError


class Reading(Struct, frozen=True):
    """Metrics of a server, with those of the poll before for rates."""

    before: Sample | None
    after: Sample
    slow: list[dict[str, Any]]
    at: datetime

    def view(self, address: str, order: Order) -> View:
        """The view of this reading."""
        return make_view(self.before, self.after, self.slow, address=address, at=self.at, order=order)


class Watch:
    """Poller of one server.

    Args:
        interval_s: time between two readings.
    """

    def __init__(
        self, client: "HttpClient", interval_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._interval_s = interval_s
        self._clock = clock
        self._before: Sample | None = None
        self._began = clock()

    def read(self) -> Reading:
        """Poll once; the first reading has no rates.

        Raises:
            PenstockError: the server does not respond, or refuses.
        """
        self._began = self._clock()
        figures = self._client.metrics(limit=LISTED)
        sample = Sample(self._clock(), figures)
        reading = Reading(self._before, sample, self._client.slow(), datetime.now(UTC))
        self._before = sample
        return reading

    def readings(self, wait: Callable[[float], object] = time.sleep) -> Iterator[Reading | Unavailable]:
        """Wait and poll, forever; an unavailable server is polled until it responds again.

        Raises:
            PenstockError: the server refuses.
        """
        while True:
            wait(max(0.0, self._began + self._interval_s - self._clock()))
            try:
                yield self.read()
            except PenstockError as error:
                if not _is_temporary(error):
                    raise
                yield Unavailable(error)


class Writer(Struct, frozen=True, kw_only=True):
    """Writes readings to standard output."""

    output: Output
    address: str
    order: Order
    limit: int
    count: int | None
    explain: Callable[[PenstockError], str]

    def write(self, readings: Iterable[Reading | Unavailable]) -> None:
        """Write readings; an outage is reported once, on standard error."""
        written, is_unavailable = 0, False
        for each in readings:
            if isinstance(each, Unavailable):
                if not is_unavailable:
                    typer.echo(f"The server is away, trying again: {self.explain(each.error)}", err=True)
                is_unavailable = True
                continue
            is_unavailable = False
            print_view(each.view(self.address, self.order), self.output, self.limit)
            written += 1
            if written == self.count:
                return


def print_view(view: View, output: Output, limit: int) -> None:
    """Write a view: JSON as one object a line, text as facts and tables with empty lines between."""
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


def _is_temporary(error: PenstockError) -> bool:
    """True if the next poll may succeed."""
    is_unavailable = isinstance(error, HttpRefused) and error.status == SERVICE_UNAVAILABLE
    return error.retryable or is_unavailable or isinstance(error, ConnectionRefused)
