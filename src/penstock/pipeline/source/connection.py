"""The way to the server: one client in each process, and patience with a server that is away for a while."""

import atexit
import os
import random
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock
from typing import TypeVar

from msgspec import Struct

from penstock.client import ConnectionLost, ConnectionRefused, HttpClient, HttpRefused
from penstock.errors import PenstockError

TIMEOUT_S = 30.0
RETRY_FOR_S = 60.0
BUSY_FOR_S = 3600.0
"""How long a server is waited for that is there and has no room: other readers may take that long."""

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_AWAY = {502, 503, 504}
_BUSY = 429
_MOST_CLIENTS = 8

T = TypeVar("T")

_stopping = Event()  # in the process of a job: set when there is no use in waiting any more


@contextmanager
def impatient(stopping: Event) -> Iterator[None]:
    """Within, nobody in this process waits for a server once `stopping` is set."""
    global _stopping  # noqa: PLW0603 - who waits knows of no job, and there is one at a time
    before, _stopping = _stopping, stopping
    try:
        yield
    finally:
        _stopping = before


class Connection(Struct, frozen=True, kw_only=True):
    """Where the server is, who asks it, and for how long."""

    address: str
    user: str | None = None
    password: str | None = None
    ca_file: str | None = None
    timeout_s: float = TIMEOUT_S
    retry_for_s: float = RETRY_FOR_S

    def client(self) -> HttpClient:
        """The client of this process; tasks that follow one another share it."""
        return _clients.get(self)

    def insist(self, call: Callable[[HttpClient], T]) -> T:
        """Ask the server for something, again and again if it is away for a while."""
        patience = Patience(self.retry_for_s)
        while True:
            try:
                return call(self.client())
            except PenstockError as error:
                patience.wait(error)


class Patience:
    """Says whether to try again, and waits before it: a little, then longer.

    Args:
        seconds: how long a server may be away.
        busy_s: how long it may say that it has no room.
    """

    def __init__(
        self, seconds: float, busy_s: float | None = None, *, sleep: Callable[[float], object] | None = None
    ) -> None:
        self._seconds = seconds
        self._busy_s = seconds if busy_s is None else busy_s
        self._sleep = sleep or _stopping.wait
        self.reset()

    def reset(self) -> None:
        """Something worked: count from the next failure on."""
        self._began: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    def wait(self, error: PenstockError) -> None:
        """Wait before the next try.

        Raises:
            PenstockError: this one, if it does not pass by itself or did not pass for so long.
        """
        if not is_passing(error):
            raise error
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        left_s = (self._busy_s if is_busy(error) else self._seconds) - (now - self._began)
        if left_s <= 0 or _stopping.is_set():
            raise error
        self._sleep(min(self._pause_s * random.uniform(0.5, 1.0), left_s))
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)


def is_passing(error: PenstockError) -> bool:
    """Whether the same request may well succeed later."""
    if isinstance(error, ConnectionRefused):
        cause = error.__context__  # not an answer that makes no sense, nor a certificate that is not trusted
        return isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError)
    if isinstance(error, HttpRefused):
        return error.retryable or error.status in _AWAY or error.status == _BUSY
    return isinstance(error, ConnectionLost)


def is_busy(error: PenstockError) -> bool:
    """Whether the server is there, and has no room."""
    return isinstance(error, HttpRefused) and error.status == _BUSY


class _Clients:
    """The clients of this process, the last ones that were used; their connections are kept between tasks."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Connection, int], HttpClient] = {}
        self._lock = Lock()

    def get(self, connection: Connection) -> HttpClient:
        """The client of a connection; a process that was forked has its own."""
        key = connection, os.getpid()
        with self._lock:
            client = self._kept.pop(key, None) or _open(connection)
            self._kept[key] = client
            while len(self._kept) > _MOST_CLIENTS:
                self._kept.pop(next(iter(self._kept))).close()  # whoever still has it opens it again
        return client

    def close(self) -> None:
        """Let go of all connections."""
        with self._lock:
            for client in self._kept.values():
                client.close()


_clients = _Clients()
atexit.register(_clients.close)


def _open(connection: Connection) -> HttpClient:
    trusted = None if connection.ca_file is None else ssl.create_default_context(cafile=connection.ca_file)
    return HttpClient(
        connection.address, connection.user, connection.password, timeout=connection.timeout_s, tls=trusted
    )
