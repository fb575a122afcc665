"""Connection to the server: one HTTP client per process, retries with backoff, and retention holds."""

import atexit
import os
import random
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock
from typing import TypeVar

from msgspec import Struct

from penstock.client import ConnectionLost, ConnectionRefused, HttpClient, HttpRefused
from penstock.errors import InvalidCursor, PenstockError, UnknownHold

T = TypeVar("T")

TIMEOUT_S = 30.0
RETRY_FOR_S = 60.0
BUSY_FOR_S = 3600.0
"""Retry time for a server that is up but has no free reader: other reads may take that long."""

_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 5.0
_UNAVAILABLE = {502, 503, 504}
_BUSY = 429
_MAX_CLIENTS = 8

_stopping = Event()  # in the process of a job: set when the job is to stop, which ends all retries


@contextmanager
def stop_waiting_on(stopping: Event) -> Iterator[None]:
    """Within the block, retries in this process end once `stopping` is set."""
    global _stopping  # noqa: PLW0603 - a process runs one job at a time
    before, _stopping = _stopping, stopping
    try:
        yield
    finally:
        _stopping = before


class Connection(Struct, frozen=True, kw_only=True):
    """Address, credentials and patience for requests to a server."""

    address: str
    user: str | None = None
    password: str | None = None
    ca_file: str | None = None
    timeout_s: float = TIMEOUT_S
    retry_for_s: float = RETRY_FOR_S

    def client(self) -> HttpClient:
        """The client of this process; successive tasks share it."""
        return _clients.get(self)

    def retry(self, call: Callable[[HttpClient], T]) -> T:
        """Call the server, and retry while it is unavailable."""
        backoff = Backoff(self.retry_for_s)
        while True:
            try:
                return call(self.client())
            except PenstockError as error:
                backoff.wait(error)


class Backoff:
    """Exponential backoff between retries, with jitter and a deadline.

    Args:
        seconds: deadline while the server is unavailable.
        busy_s: deadline while the server responds that it is busy.
    """

    def __init__(
        self, seconds: float, busy_s: float | None = None, *, sleep: Callable[[float], object] | None = None
    ) -> None:
        self._seconds = seconds
        self._busy_s = seconds if busy_s is None else busy_s
        self._sleep = sleep or _stopping.wait
        self.reset()

    def reset(self) -> None:
        """Start over after a success."""
        self._began: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    def wait(self, error: PenstockError) -> None:
        """Wait before the next try.

        Raises:
            PenstockError: the same error, if it is permanent or the deadline has passed.
        """
        if not is_transient(error):
            raise error
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        left_s = (self._busy_s if is_busy(error) else self._seconds) - (now - self._began)
        if left_s <= 0 or _stopping.is_set():
            raise error
        self._sleep(min(self._pause_s * random.uniform(0.5, 1.0), left_s))  # noqa: S311 - jitter
        self._pause_s = min(self._pause_s * 2, _MAX_PAUSE_S)


def is_transient(error: PenstockError) -> bool:
    """The same request may succeed later."""
    if isinstance(error, ConnectionRefused):
        cause = error.__context__  # neither an invalid response nor an untrusted certificate
        return isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError)
    if isinstance(error, HttpRefused):
        return error.retryable or error.status in _UNAVAILABLE or error.status == _BUSY
    return isinstance(error, ConnectionLost)


def is_busy(error: PenstockError) -> bool:
    """The server is up, but has no capacity for the request."""
    return isinstance(error, HttpRefused) and error.status == _BUSY


class _Clients:
    """Cache of clients, least recently used first; connections stay open between tasks."""

    def __init__(self) -> None:
        self._cached: dict[tuple[Connection, int], HttpClient] = {}
        self._lock = Lock()

    def get(self, connection: Connection) -> HttpClient:
        """The client of a connection; a forked process opens its own."""
        key = connection, os.getpid()
        with self._lock:
            client = self._cached.pop(key, None) or _open(connection)
            self._cached[key] = client
            while len(self._cached) > _MAX_CLIENTS:
                self._cached.pop(next(iter(self._cached))).close()  # a client reopens itself when used
        return client

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for client in self._cached.values():
                client.close()


_clients = _Clients()
atexit.register(_clients.close)


def _open(connection: Connection) -> HttpClient:
    trusted = None if connection.ca_file is None else ssl.create_default_context(cafile=connection.ca_file)
    return HttpClient(
        connection.address, connection.user, connection.password, timeout=connection.timeout_s, tls=trusted
    )


class StreamHold:
    """Retention hold of a stream: the log keeps what the stream has not read.

    The hold lapses when the stream is gone for long.
    """

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
        self._renewed: float | None = None
        """Time of the last contact; None: the server does not know the hold."""

    def keep(self, cursor: str) -> None:
        """Hold everything after a cursor; no request if the hold was renewed recently."""
        if self._renewed is None:
            self._create(cursor)
        elif self._now() - self._renewed >= self._lapse_s / 4:
            self._update(lambda: self._connection.retry(lambda client: client.renew(self._name)), cursor)

    def move(self, cursor: str) -> None:
        """Release everything up to a cursor: it was read."""
        self._update(lambda: self._connection.retry(lambda client: client.commit(self._name, cursor)), cursor)

    def _update(self, call: Callable[[], object], cursor: str) -> None:
        try:
            call()
        except HttpRefused as error:
            if error.code != UnknownHold.code:
                raise
            self._create(cursor)  # it has lapsed, or was deleted
        else:
            self._renewed = self._now()

    def _create(self, cursor: str) -> None:
        try:
            self._connection.retry(
                lambda client: client.hold(self._name, cursor, self._lapse_s, filters=self._filters)
            )
        except HttpRefused as error:
            if error.code != InvalidCursor.code:
                raise
            # Retention was faster. Planning reports the loss; the next commit holds what is left.
            self._renewed = None
        else:
            self._renewed = self._now()
