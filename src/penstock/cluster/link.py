"""Peer link: the state machine of the one connection between two processes of a cluster.

One side dials, the other accepts. Both send publishes and forwards for shards of the other, take those for
their own, and settle them when they are committed. Events and time are handed in, actions are returned; there
is no socket, timer or randomness here, so that a seed decides every run of a test.

A publish is acknowledged only after the peer has committed it. If the connection breaks before, it fails. A
forward is sent again, by its number, until the peer has confirmed it, and the peer skips numbers that it has.
"""

from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from penstock.cluster.actions import (
    Acknowledge,
    Action,
    Close,
    Connect,
    Fail,
    Forwarded,
    Received,
    Send,
    Take,
    Unblocked,
)
from penstock.cluster.breaker import Backoff, Breaker
from penstock.cluster.forwards import ForwardNumbers, MissingForwards, Route
from penstock.cluster.window import RouteQueue, Window
from penstock.runs import Run
from penstock.wire.peer import PROTOCOL_VERSION, Batch, Heartbeat, Hello, Message, Settled

MAX_GREETINGS = 8
"""Accepted connections that have not sent a hello."""


class Verdict(Enum):
    """Outcome of handing a run to a link."""

    ACCEPTED = "accepted"
    BLOCKED = "blocked"
    """The window is full: hand it in again after `Unblocked`."""
    UNAVAILABLE = "unavailable"
    """The breaker is open: fail the caller at once."""


class LinkSettings(Struct, frozen=True, kw_only=True):
    """Times and limits of a link."""

    heartbeat_s: float = 0.5
    silence_s: float = 2.0
    """Time without a sign of life after which the peer counts as gone."""
    least_backoff_s: float = 0.1
    most_backoff_s: float = 5.0
    failures: int = 5
    """In a row; then the breaker opens."""
    probe_s: float = 1.0
    window_bytes: int = 8 * 1_048_576
    window_messages: int = 10_000
    """Of one shard at one peer, not settled."""


class ProcessIdentity(Struct, frozen=True):
    """Process at one end of a link."""

    cluster_id: str
    process: str
    incarnation: int
    """Grows with every start."""


class Link:
    """State machine of one peer link.

    Connections have numbers: the dialling side gives them in `Connect`, the accepting side's owner in
    `on_connected`, each in ascending order. Calls are expected with a time that never falls.
    """

    __slots__ = (
        "_backoff",
        "_breaker",
        "_connect_at",
        "_connection",
        "_dialling",
        "_expected",
        "_greetings",
        "_heard_at",
        "_heartbeat_at",
        "_identity",
        "_is_dialler",
        "_last_dialled",
        "_newest",
        "_numbers",
        "_peer",
        "_routes",
        "_settings",
        "_windows",
    )

    def __init__(
        self,
        identity: ProcessIdentity,
        peer: str,
        *,
        is_dialler: bool,
        numbers: ForwardNumbers,
        random: Callable[[], float],
        now: float,
        settings: LinkSettings,
    ) -> None:
        """Args:
        peer: name of the process at the other end; another one is refused.
        """
        self._identity = identity
        self._peer = peer
        self._is_dialler = is_dialler
        self._numbers = numbers
        self._settings = settings
        self._backoff = Backoff(random, settings.least_backoff_s, settings.most_backoff_s)
        self._breaker = Breaker(settings.failures, settings.probe_s)
        self._connection = 0
        """The one that is valid: both sides have said hello. 0 if there is none."""
        self._newest = (-1, -1)
        """Incarnation of the dialling side and number of its connection: older ones are refused."""
        self._greetings: dict[int, float] = {}
        """Connections that wait for the peer's hello, with the time of their beginning."""
        self._dialling = 0
        self._last_dialled = 0
        self._connect_at: float | None = now if is_dialler else None
        self._heard_at = now
        self._heartbeat_at = now
        self._windows: dict[int, Window] = {}
        self._routes: dict[Route, RouteQueue] = {}
        self._expected: dict[Route, int] = {}
        """Number of the next publish of each route on this connection."""

    @property
    def is_live(self) -> bool:
        """There is a connection on which both sides have said hello."""
        return self._connection != 0

    @property
    def is_open(self) -> bool:
        """The breaker is open: callers are refused, but for a probe."""
        return self._breaker.is_open

    def unsettled(self, shard: int) -> tuple[int, int]:
        """Bytes and messages for a shard that are not settled."""
        window = self._window(shard)
        return window.bytes, window.messages

    # Runs for shards of the peer

    def publish(self, now: float, origin: int, shard: int, runs: list[Run], token: object) -> Verdict:
        """Hand in publishes for the next `flush`; their token returns once, in `Acknowledge` or `Fail`."""
        if not self.is_live and not self._breaker.admits(now):
            return Verdict.UNAVAILABLE
        is_queued = self._route(origin, shard).add_publishes(runs, token, now)
        return Verdict.ACCEPTED if is_queued else Verdict.BLOCKED

    def forward(self, now: float, origin: int, shard: int, number: int, runs: list[Run]) -> Verdict:
        """Hand in forwards that are stored under this number and the next ones; a route has no gaps.

        After a restart of the origin, those that are stored are handed in again. The breaker does not matter:
        a forward waits.
        """
        is_queued = self._route(origin, shard).add_forwards(number, runs, now)
        return Verdict.ACCEPTED if is_queued else Verdict.BLOCKED

    def flush(self) -> list[Action]:
        """Send what was handed in, once for each turn."""
        if not self.is_live:
            return []
        return [
            Send(self._connection, batch)
            for (origin, shard), queue in self._routes.items()
            for batch in queue.batches(origin, shard)
        ]

    def send(self, message: Message) -> list[Action]:
        """Send a message of another part of the protocol; nothing is sent if there is no connection."""
        return [Send(self._connection, message)] if self.is_live else []

    # Runs for shards of this side

    def on_taken(self, take: Take, code: str = "") -> list[Action]:
        """Runs are committed, or refused with a code: settle them. Refused forwards count as committed.

        Forwards are settled on whichever connection there is. Publishes of another connection have failed at
        their origin.
        """
        if take.is_forward:
            self._numbers.commit((take.origin, take.shard), take.last)
        elif take.connection != self._connection:
            return []
        return self.send(Settled(take.shard, take.origin, take.is_forward, take.first, take.last, code))

    def on_rolled_back(self, now: float, take: Take) -> list[Action]:
        """Runs could not be committed: the peer has to send them again.

        Expected for everything that was taken and is not committed, before anything else is: forwards that
        were taken after these are not committed either.
        """
        if take.is_forward:
            self._numbers.rollback((take.origin, take.shard))
        elif take.connection != self._connection:
            return []
        return self._break(now, "a commit failed") if self.is_live else []

    # Connections

    def on_connected(self, now: float, connection: int) -> list[Action]:
        """A connection is there; neither side knows the other yet."""
        if self._is_dialler:
            if connection != self._dialling:
                return [Close(connection, "another connection was dialled since")]
            return [Send(connection, self._hello(connection))]
        self._greetings[connection] = now
        if len(self._greetings) <= MAX_GREETINGS:
            return []
        oldest = min(self._greetings)
        del self._greetings[oldest]
        return [Close(oldest, "too many connections without a hello")]

    def on_lost(self, now: float, connection: int) -> list[Action]:
        """A connection broke, or could not be made."""
        self._greetings.pop(connection, None)
        if connection == self._connection != 0:
            return self._lose(now, "the connection broke")
        if connection == self._dialling != 0:
            return self._lose(now, "the peer could not be reached")
        return []

    def on_message(self, now: float, connection: int, message: Message) -> list[Action]:
        """A message arrived; those of connections that are not valid any more are ignored."""
        if isinstance(message, Hello):
            return self._on_hello(now, connection, message)
        if connection != self._connection:
            return []
        self._heard_at = now
        if isinstance(message, Heartbeat):
            return []
        if isinstance(message, Batch):
            return self._on_batch(now, message)
        if isinstance(message, Settled):
            return self._on_settled(now, message)
        return [Received(message)]

    def on_time(self, now: float) -> list[Action]:
        """Time has passed: heartbeats, silence, greetings, and the next attempt to connect."""
        actions: list[Action] = self._expire_greetings(now)
        if self.is_live:
            if now - self._heard_at >= self._settings.silence_s:
                self._breaker.on_silence(now)
                return actions + self._break(now, "the peer is silent")
            if now >= self._heartbeat_at:
                self._heartbeat_at = max(self._heartbeat_at, now - self._settings.heartbeat_s)  # no bursts
                self._heartbeat_at += self._settings.heartbeat_s
                actions.append(Send(self._connection, Heartbeat()))
            return actions
        if now - self._heard_at >= self._settings.silence_s:
            self._breaker.on_silence(now)
        if self._breaker.is_open:
            actions += self._fail_publishes(now - self._settings.probe_s, "the peer is not available")
        if self._connect_at is not None and now >= self._connect_at:
            self._last_dialled += 1
            self._dialling, self._connect_at = self._last_dialled, None
            self._greetings[self._dialling] = now
            actions.append(Connect(self._dialling))
        return actions

    def _expire_greetings(self, now: float) -> list[Action]:
        """Give up connections whose hello does not come."""
        late = [each for each, since in self._greetings.items() if now - since >= self._settings.silence_s]
        actions: list[Action] = []
        for connection in late:
            del self._greetings[connection]
            actions.append(Close(connection, "no hello"))
            if connection == self._dialling:
                actions += self._lose(now, "the peer could not be reached")
        return actions

    def _on_hello(self, now: float, connection: int, hello: Hello) -> list[Action]:
        if connection not in self._greetings:
            return []
        del self._greetings[connection]
        problem = self._problem_of(hello)
        if problem is not None:
            lost = self._lose(now, problem) if self._is_dialler else []
            return [Close(connection, problem), *lost]
        if self._is_dialler:
            self._dialling = 0
            return self._begin(now, connection)
        actions: list[Action] = []
        self._newest = (hello.incarnation, hello.connection)
        if self.is_live:
            actions += self._break(now, "the peer has made a new connection")
        return [*actions, Send(connection, self._hello(hello.connection)), *self._begin(now, connection)]

    def _problem_of(self, hello: Hello) -> str | None:
        if hello.version != PROTOCOL_VERSION:
            return f"version {hello.version} of the protocol; this one is {PROTOCOL_VERSION}"
        if hello.cluster_id != self._identity.cluster_id:
            return f"cluster {hello.cluster_id}; this one is {self._identity.cluster_id}"
        if hello.process != self._peer:
            return f"process {hello.process}; expected {self._peer}"
        if not self._is_dialler and (hello.incarnation, hello.connection) <= self._newest:
            return "a newer connection is there"
        return None

    def _hello(self, connection: int) -> Hello:
        own = self._identity
        return Hello(PROTOCOL_VERSION, own.cluster_id, own.process, own.incarnation, connection)

    def _begin(self, now: float, connection: int) -> list[Action]:
        """Both sides know each other: send what waits, forwards from the first that is not confirmed."""
        self._connection = connection
        self._heard_at = now
        self._heartbeat_at = now + self._settings.heartbeat_s
        self._breaker.on_success()
        self._backoff.reset()
        self._expected.clear()
        for queue in self._routes.values():
            queue.on_connected()
        return self.flush()

    def _break(self, now: float, reason: str) -> list[Action]:
        return [Close(self._connection, reason), *self._lose(now, reason)]

    def _lose(self, now: float, reason: str) -> list[Action]:
        """The connection is gone, or an attempt failed: publishes that were sent fail, forwards wait."""
        was_live = self.is_live
        self._greetings.pop(self._dialling, None)
        self._connection = self._dialling = 0
        self._breaker.on_failure(now)
        if self._is_dialler:
            self._connect_at = now + self._backoff.next_delay()
        return self._fail_publishes(now, reason) if was_live or self._breaker.is_open else []

    def _fail_publishes(self, queued_until: float, reason: str) -> list[Action]:
        failed = [entry for queue in self._routes.values() for entry in queue.fail_publishes(queued_until)]
        actions: list[Action] = [Fail(entry.token, reason) for entry in failed]
        return actions + self._unblocked() if actions else actions

    # Messages

    def _on_batch(self, now: float, batch: Batch) -> list[Action]:
        if not batch.runs:
            return []
        if batch.is_forward:
            return self._on_forwards(now, batch)
        route = (batch.origin, batch.shard)
        if batch.number != self._expected.get(route, 1):
            return self._break(now, f"publish {batch.number} is not the next one")
        self._expected[route] = batch.number + len(batch.runs)
        return [Take(self._connection, batch.origin, batch.shard, False, batch.number, batch.runs)]

    def _on_forwards(self, now: float, batch: Batch) -> list[Action]:
        """Skip forwards that were taken before. What is committed is confirmed, the rest when it is."""
        route = (batch.origin, batch.shard)
        try:
            skipped = self._numbers.take(route, batch.number, len(batch.runs))
        except MissingForwards as error:
            return self._break(now, str(error))
        actions: list[Action] = []
        committed = self._numbers.committed(route)
        if skipped and committed >= batch.number:
            settled = Settled(batch.shard, batch.origin, True, batch.number, committed)
            actions.append(Send(self._connection, settled))
        if skipped < len(batch.runs):
            first, runs = batch.number + skipped, batch.runs[skipped:]
            actions.append(Take(self._connection, batch.origin, batch.shard, True, first, runs))
        return actions

    def _on_settled(self, now: float, settled: Settled) -> list[Action]:
        queue = self._route(settled.origin, settled.shard)
        actions: list[Action] = []
        if settled.is_forward:
            if queue.confirm_forwards(settled.last):
                actions.append(Forwarded(settled.origin, settled.shard, queue.confirmed, settled.code))
        else:
            entries = queue.settle_publishes(settled.first, settled.last, settled.code)
            if entries is None:
                return self._break(now, f"publishes {settled.first} to {settled.last} were not the next ones")
            actions += [Acknowledge(entry.token, entry.code) for entry in entries]
        return actions + self._unblocked()

    # Windows

    def _unblocked(self) -> list[Action]:
        return [Unblocked(shard) for shard, window in self._windows.items() if window.take_unblocked()]

    def _window(self, shard: int) -> Window:
        window = self._windows.get(shard)
        if window is None:
            window = Window(self._settings.window_bytes, self._settings.window_messages)
            self._windows[shard] = window
        return window

    def _route(self, origin: int, shard: int) -> RouteQueue:
        queue = self._routes.get((origin, shard))
        if queue is None:
            queue = self._routes[origin, shard] = RouteQueue(self._window(shard))
        return queue
