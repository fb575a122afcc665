"""Looks at a server again and again, and goes on when it is away."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from penstock.cli.top.order import Order
from penstock.cli.top.view import View, look
from penstock.client.errors import ConnectionRefused, HttpRefused
from penstock.client.rates import Sample
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import HttpClient

UNAVAILABLE = 503
LISTED = 1_000
"""Topics that are asked for, the busiest; a server that has ten thousand would have to work for each look."""


class Away(Struct, frozen=True):
    """The server did not answer; it will be asked again."""

    error: PenstockError


class Seen(Struct, frozen=True):
    """What the server has said, and what it had said the time before."""

    before: Sample | None
    after: Sample
    slow: list[dict[str, Any]]
    at: datetime

    def view(self, address: str, order: Order) -> View:
        """The same, ready to be shown."""
        return look(self.before, self.after, self.slow, address=address, at=self.at, order=order)


class Watch:
    """A server under observation.

    Args:
        interval_s: from one look to the next.
    """

    def __init__(
        self, client: "HttpClient", interval_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._interval_s = interval_s
        self._clock = clock
        self._before: Sample | None = None
        self._began = clock()

    def look(self) -> Seen:
        """Ask the server how it is; the first time there are no rates.

        Raises:
            PenstockError: it does not answer, or not to us.
        """
        self._began = self._clock()
        figures = self._client.metrics(limit=LISTED)
        sample = Sample(self._clock(), figures)
        seen = Seen(self._before, sample, self._client.slow(), datetime.now(UTC))
        self._before = sample
        return seen

    def looks(self, wait: Callable[[float], object] = time.sleep) -> Iterator[Seen | Away]:
        """Wait and look, again and again; a server that is away is asked until it is back.

        Raises:
            PenstockError: the server answers, and does not let us look.
        """
        while True:
            wait(max(0.0, self._began + self._interval_s - self._clock()))
            try:
                yield self.look()
            except PenstockError as error:
                if not _may_pass(error):
                    raise
                yield Away(error)


def _may_pass(error: PenstockError) -> bool:
    """Whether it may be otherwise the next time."""
    is_unavailable = isinstance(error, HttpRefused) and error.status == UNAVAILABLE
    return error.retryable or is_unavailable or isinstance(error, ConnectionRefused)
