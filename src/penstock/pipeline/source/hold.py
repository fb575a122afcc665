"""A place in the log that a stream holds, so that retention waits for it."""

import time
from collections.abc import Callable, Sequence

from penstock.client import HttpRefused
from penstock.errors import InvalidCursor, UnknownHold
from penstock.pipeline.source.connection import Connection


class StreamHold:
    """Keeps what a stream has not read; it lapses by itself when the stream is gone for long."""

    def __init__(
        self,
        name: str,
        lapse_s: float,
        connection: Connection,
        filters: Sequence[str],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._lapse_s = lapse_s
        self._connection = connection
        self._filters = filters
        self._now = now
        self._seen: float | None = None
        """When the server last heard of it; None: it does not know this one yet."""

    def keep(self, cursor: str) -> None:
        """Be sure that what follows a cursor stays; costs nothing if there was a sign of life lately."""
        if self._seen is None:
            self._create(cursor)
        elif self._now() - self._seen >= self._lapse_s / 4:
            self._ask(lambda: self._connection.insist(lambda client: client.renew(self._name)), cursor)

    def move(self, cursor: str) -> None:
        """Let go of what comes before a cursor: it was read."""
        self._ask(lambda: self._connection.insist(lambda client: client.commit(self._name, cursor)), cursor)

    def _ask(self, call: Callable[[], object], cursor: str) -> None:
        try:
            call()
        except HttpRefused as error:
            if error.code != UnknownHold.code:
                raise
            self._create(cursor)  # it has lapsed, or somebody ended it
        else:
            self._seen = self._now()

    def _create(self, cursor: str) -> None:
        try:
            self._connection.insist(
                lambda client: client.hold(self._name, cursor, self._lapse_s, filters=self._filters)
            )
        except HttpRefused as error:
            if error.code != InvalidCursor.code:
                raise
            # What follows has left already. Planning tells of that; the next commit holds what there is.
            self._seen = None
        else:
            self._seen = self._now()
