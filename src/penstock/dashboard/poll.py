"""Asks the server once a second, for all browsers together, and keeps what it said.

The poller is a thread of its own, so that pages never wait for the server. It goes on whatever happens: a
server that is away is asked again a second later, and what it said before stays until it is back.
"""

from datetime import UTC, datetime
from threading import Event, Lock, Thread
from time import monotonic
from typing import NamedTuple

from penstock.client import HttpClient
from penstock.dashboard.figures import Figures, read_figures
from penstock.dashboard.history import History
from penstock.dashboard.slow import SlowSubscriber, read_slow
from penstock.dashboard.source import Source
from penstock.dashboard.trouble import Kind, Trouble, explain

INTERVAL_S = 1.0
LISTED = 1_000
"""Topics that are asked for, the busiest; to tell of ten thousand each second is work for both sides."""
SILENCE_S = 3.0
"""Figures that are older are not live, also while the server may still answer."""
STOP_TIMEOUT_S = 1.0
"""How long a question that is under way may hold up the end."""


class View(NamedTuple):
    """What is known at one moment; it does not change any more."""

    source: Source
    history: History
    slow: list[SlowSubscriber]
    trouble: Trouble | None

    @property
    def figures(self) -> Figures:
        """The newest figures; there have to be some."""
        return self.history.last.figures


class Poller:
    """The server's figures, fresh each second from `start` to `stop`."""

    def __init__(self, source: Source, interval_s: float = INTERVAL_S) -> None:
        self.source = source
        self._interval_s = interval_s
        self._history = History()
        self._slow: list[SlowSubscriber] = []
        self._trouble: Trouble | None = None
        self._lock = Lock()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="poller", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a question that is under way may come to its end, unless that takes long."""
        self._stopping.set()
        self._thread.join(STOP_TIMEOUT_S)

    def view(self) -> View:
        """What is known now."""
        with self._lock:
            return View(self.source, self._history.copy(), self._slow, self._trouble)

    @property
    def is_silent(self) -> bool:
        """Whether the server cannot be reached, or lets a question wait for long."""
        with self._lock:
            if self._trouble is not None:
                return self._trouble.kind is Kind.UNREACHABLE
            return len(self._history) > 0 and monotonic() - self._history.last.at > SILENCE_S

    def _run(self) -> None:
        with self.source.connect() as client:
            due = monotonic()
            while not self._stopping.wait(max(due - monotonic(), 0.0)):
                self.ask(client)
                due = max(due + self._interval_s, monotonic())

    def ask(self, client: HttpClient) -> None:
        """Ask once, and keep the answer or why there is none."""
        path = "/metrics"
        try:
            figures = read_figures(client.metrics(limit=LISTED))
            at, time = monotonic(), datetime.now(UTC)
            path = "/api/v1/slow"
            slow = read_slow(client.slow())
        except Exception as error:  # whatever somebody else than a Penstock server answers
            self._fail(error, path)
            return
        with self._lock:
            self._history.add(at, time, figures)
            self._slow, self._trouble = slow, None

    def _fail(self, error: Exception, path: str) -> None:
        with self._lock:
            since = datetime.now(UTC) if self._trouble is None else self._trouble.since
            self._trouble = explain(error, self.source, path, since)


_current: list[Poller] = []


def begin(source: Source) -> Poller:
    """Start the poller that all pages of this process share."""
    poller = Poller(source)
    _current[:] = [poller]
    poller.start()
    return poller


def current() -> Poller:
    """The poller that all pages share."""
    return _current[0]
