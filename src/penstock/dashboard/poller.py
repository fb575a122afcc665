"""Poller: one thread fetches metrics once a second for all browsers.

Pages read the last view and never wait for the server. If a request fails, the poller retries a second later
and keeps the last metrics until the server responds again.

The history has the metrics of the last two minutes, and rates computed from them. Counters start at zero with
the server, so no rate spans a restart.
"""

import ssl
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice, pairwise
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import NamedTuple

from msgspec.structs import replace

from penstock.client import ConnectionLost, ConnectionRefused, HttpClient
from penstock.dashboard.responses import Metrics, SlowSubscriber, decode_metrics, decode_slow
from penstock.errors import BadCredentials, NotAuthorized, PenstockError

SAMPLES = 120
TOPICS_REMEMBERED = 100
"""Topics kept in older samples, the busiest first; a server may list ten thousand."""
RATE_WINDOW_S = 5.0
"""Rates are averages over this many seconds: long enough to be steady, short enough to be live."""
UPTIME_SLACK_S = 6.0
"""Tolerance for an uptime that seems to lag, as responses may take seconds."""
PAUSE_S = 5.0
"""Time without a response from which charts show a gap."""

Pick = Callable[[Metrics], float]
"""Selects one number of the metrics."""
REQUEST_TIMEOUT_S = 5.0
"""Time after which a server that does not respond counts as unreachable."""
POLL_INTERVAL_S = 1.0
TOPICS_LIMIT = 1_000
"""Topics per request, the busiest: listing ten thousand each second is work for both sides."""
STALE_AFTER_S = 3.0
"""Age from which metrics are not live any more, even while a request is pending."""
STOP_TIMEOUT_S = 1.0
"""Time to wait for a pending request on shutdown."""


class Sample(NamedTuple):
    """Metrics at one moment."""

    at: float
    """Monotonic seconds."""
    time: datetime
    metrics: Metrics
    life: int = 0
    """Incremented with every restart of the server that was noticed."""


class Point(NamedTuple):
    """Value at one moment; None interrupts the line."""

    time: datetime
    value: float | None


class History:
    """Bounded ring of samples, oldest first."""

    def __init__(self, limit: int = SAMPLES) -> None:
        self._samples: deque[Sample] = deque(maxlen=limit)

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._samples)

    @property
    def last(self) -> Sample:
        """Newest sample; there must be one."""
        return self._samples[-1]

    def add(self, at: float, time: datetime, metrics: Metrics) -> None:
        """Append a sample; the one before keeps only its busiest topics."""
        life = 0
        if self._samples:
            before = self._samples.pop()
            life = before.life + _is_restart(before, at, metrics)
            self._samples.append(before._replace(metrics=_without_most_topics(before.metrics)))
        self._samples.append(Sample(at, time, metrics, life))

    def copy(self) -> "History":
        """Snapshot with the same samples."""
        same = History(self._samples.maxlen or SAMPLES)
        same._samples.extend(self._samples)
        return same

    def restarts(self) -> list[datetime]:
        """Times of the first response after each restart of the server."""
        return [after.time for before, after in pairwise(self._samples) if after.life > before.life]

    def values(self, pick: Pick) -> list[Point]:
        """Number over time."""
        return [
            Point(now.time, None if is_gap(before, now) else pick(now.metrics))
            for before, now in self._pairs()
        ]

    def rate(self, pick: Pick, window_s: float = RATE_WINDOW_S) -> float | None:
        """Increase of a counter per second, recently; None if not known yet."""
        return _rate_at(list(self._samples), len(self._samples) - 1, pick, window_s)

    def rates(self, pick: Pick, window_s: float = RATE_WINDOW_S) -> list[Point]:
        """Increase of a counter per second, over time."""
        samples = list(self._samples)
        return [Point(sample.time, _rate_at(samples, i, pick, window_s)) for i, sample in enumerate(samples)]

    def _pairs(self) -> Iterator[tuple[Sample | None, Sample]]:
        before = None
        for sample in self._samples:
            yield before, sample
            before = sample


def _is_restart(before: Sample, at: float, metrics: Metrics) -> bool:
    """True if the server restarted since a sample, judging by its ids or its uptime."""
    known = before.metrics
    if (known.node_id, known.log.epoch) != (metrics.node_id, metrics.log.epoch):
        return True
    expected_s = known.uptime_seconds + (at - before.at)
    return metrics.uptime_seconds < max(known.uptime_seconds, expected_s - UPTIME_SLACK_S)


def is_gap(before: Sample | None, now: Sample) -> bool:
    """True if the server restarted between two samples, or they are too far apart."""
    return before is not None and (before.life != now.life or now.at - before.at > PAUSE_S)


def _rate_at(samples: list[Sample], index: int, pick: Pick, window_s: float) -> float | None:
    """Rate of a counter over the window that ends with a sample."""
    now = first = samples[index]
    while index > 0 and now.at - first.at < window_s and not is_gap(samples[index - 1], first):
        index -= 1
        first = samples[index]
    seconds = now.at - first.at
    return max(pick(now.metrics) - pick(first.metrics), 0.0) / seconds if seconds > 0 else None


def _without_most_topics(metrics: Metrics) -> Metrics:
    if len(metrics.topics) <= TOPICS_REMEMBERED:
        return metrics
    return replace(metrics, topics=dict(islice(metrics.topics.items(), TOPICS_REMEMBERED)))


class Source(NamedTuple):
    """Server address, credentials and lake that the dashboard shows."""

    address: str = "http://127.0.0.1:8080"
    user: str | None = None
    password: str | None = None
    ca_file: Path | None = None
    lake: Path | None = None

    def connect(self, timeout: float = REQUEST_TIMEOUT_S) -> HttpClient:
        """Create a client; a server that is down shows with the first request.

        Raises:
            ValueError: the address or the user name is not valid.
            OSError: the certificates cannot be read.
        """
        trusted = None if self.ca_file is None else ssl.create_default_context(cafile=str(self.ca_file))
        return HttpClient(self.address, self.user, self.password, timeout=timeout, tls=trusted)


class FailureKind(StrEnum):
    """Kind of a failed poll."""

    UNREACHABLE = "unreachable"
    BAD_CREDENTIALS = "bad-credentials"
    NOT_AUTHORIZED = "not-authorized"
    STRANGE = "strange"


TITLES = {
    FailureKind.UNREACHABLE: "No Penstock server responds",
    FailureKind.BAD_CREDENTIALS: "The server rejects the user name or password",
    FailureKind.NOT_AUTHORIZED: "This user may not see the server's metrics",
    FailureKind.STRANGE: "The response is not from a Penstock server",
}


class PollFailure(NamedTuple):
    """Failed poll: the request, the error, advice, and the time of the first failure."""

    kind: FailureKind
    tried: str
    text: str
    advice: tuple[str, ...]
    since: datetime

    @property
    def title(self) -> str:
        """Summary in one line."""
        return TITLES[self.kind]


class View(NamedTuple):
    """Immutable snapshot of all that the poller knows."""

    source: Source
    history: History
    slow: list[SlowSubscriber]
    failure: PollFailure | None

    @property
    def metrics(self) -> Metrics:
        """Newest metrics; the history must not be empty."""
        return self.history.last.metrics


class Poller:
    """Polling thread, from `start` to `stop`."""

    def __init__(self, source: Source, interval_s: float = POLL_INTERVAL_S) -> None:
        self.source = source
        self._interval_s = interval_s
        self._history = History()
        self._slow: list[SlowSubscriber] = []
        self._failure: PollFailure | None = None
        self._lock = Lock()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="poller", daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling; a pending request may finish within a second."""
        self._stopping.set()
        self._thread.join(STOP_TIMEOUT_S)

    def view(self) -> View:
        """Snapshot of the current state."""
        with self._lock:
            return View(self.source, self._history.copy(), self._slow, self._failure)

    @property
    def is_silent(self) -> bool:
        """True if the server is unreachable, or its last response is too old."""
        with self._lock:
            if self._failure is not None:
                return self._failure.kind is FailureKind.UNREACHABLE
            return len(self._history) > 0 and monotonic() - self._history.last.at > STALE_AFTER_S

    def _run(self) -> None:
        with self.source.connect() as client:
            due = monotonic()
            while not self._stopping.wait(max(due - monotonic(), 0.0)):
                self.ask(client)
                due = max(due + self._interval_s, monotonic())

    def ask(self, client: HttpClient) -> None:
        """Poll once, and store the metrics or the failure."""
        path = "/metrics"
        try:
            metrics = decode_metrics(client.metrics(limit=TOPICS_LIMIT))
            at, time = monotonic(), datetime.now(UTC)
            path = "/api/v1/slow"
            slow = decode_slow(client.slow())
        except Exception as error:  # another program may respond with anything
            self._fail(error, path)
            return
        with self._lock:
            self._history.add(at, time, metrics)
            self._slow, self._failure = slow, None

    def _fail(self, error: Exception, path: str) -> None:
        with self._lock:
            since = datetime.now(UTC) if self._failure is None else self._failure.since
            self._failure = explain_failure(error, self.source, path, since)


_current: list[Poller] = []


def start_poller(source: Source) -> Poller:
    """Start the poller that all pages of this process share."""
    poller = Poller(source)
    _current[:] = [poller]
    poller.start()
    return poller


def current_poller() -> Poller:
    """Poller that all pages share."""
    return _current[0]


def explain_failure(error: Exception, source: Source, path: str, since: datetime) -> PollFailure:
    """Turn an error into a failure with advice."""
    kind = _kind_of(error)
    tried = f"GET {source.address.rstrip('/')}{path}"
    text = str(error) if isinstance(error, PenstockError) else f"not a response of a Penstock server: {error}"
    return PollFailure(kind, tried, " ".join(text.split()), _advice(kind, source), since)


def _kind_of(error: Exception) -> FailureKind:
    code = error.code if isinstance(error, PenstockError) else ""
    if code == BadCredentials.code:
        return FailureKind.BAD_CREDENTIALS
    if code == NotAuthorized.code:
        return FailureKind.NOT_AUTHORIZED
    return (
        FailureKind.UNREACHABLE
        if isinstance(error, ConnectionRefused | ConnectionLost)
        else FailureKind.STRANGE
    )


def _advice(kind: FailureKind, source: Source) -> tuple[str, ...]:
    identity = f"user `{source.user}`" if source.user else "an anonymous client"
    if kind is FailureKind.UNREACHABLE:
        return (
            "Is the server running? `penstock serve` starts one.",
            "Is this its HTTP port? Set another with `penstock dashboard --address http://host:8080`.",
            "Check it in a terminal with `penstock health`.",
        )
    if kind is FailureKind.BAD_CREDENTIALS:
        return (
            f"The dashboard connects as {identity}.",
            "Start it with `--user NAME --password-file FILE`; `penstock passwd` sets a password.",
        )
    if kind is FailureKind.NOT_AUTHORIZED:
        return (
            f"The dashboard connects as {identity}. It needs the right to subscribe to `$SYS/#`.",
            "Add `subscribe $SYS/#` for this user to the access list and reload it (SIGHUP).",
        )
    return (
        "Is this the HTTP port of a Penstock server? `penstock serve` prints its addresses.",
        "If the server has an `http.admin_port`, use that port in `--address`.",
    )
