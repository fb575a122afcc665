"""Slow-consumer report, and the losses that doors warn their clients of.

A connected session is watched from its first queued message until its queue is empty. It is slow once that
took `slow.after_ms`, or once a message was dropped. Only watched sessions are examined each second. Rows
outlive recovery and disconnection for a while.

Losses are counted where they happen. `LossReports.take` returns and resets them, so each is reported once.
"""

from collections import OrderedDict
from typing import Protocol

from msgspec import Struct

from penstock.core.runtime.clock import Clock
from penstock.core.sessions.session import LossCounts, Session
from penstock.core.settings import SlowSettings
from penstock.model import Door, Policy, Reason


class SlowClient(Struct, frozen=True):
    """Slow client, present or past. Times are wall-clock microseconds."""

    client_id: str
    door: Door
    is_slow: bool
    """It is slow now."""
    is_connected: bool
    recovered: bool
    """It has caught up; one that has gone meanwhile has not."""
    waiting_messages: int
    waiting_bytes: int
    oldest_age_s: float
    """Age of the oldest queued message while it was connected."""
    dropped: int
    """Messages it lost since `first_slow_at` because it was slow."""
    policy: Policy
    """Policy of the subscription that was queued last."""
    first_slow_at: int
    last_slow_at: int


class _Row:
    """Record of one slow client."""

    __slots__ = ("dropped", "first_at", "is_connected", "last_at", "policy", "recovered", "session")

    def __init__(self, session: Session, policy: Policy, now_us: int) -> None:
        self.session = session
        self.policy = policy
        self.dropped = 0
        self.first_at = self.last_at = now_us
        self.is_connected = True
        self.recovered = False

    @property
    def is_over(self) -> bool:
        """It is slow no more."""
        return self.recovered or not self.is_connected


class _Watch:
    """Watch on a session with queued messages."""

    __slots__ = ("is_slow", "policy", "row", "since")

    def __init__(self, since: float, policy: Policy) -> None:
        self.since = since
        self.policy = policy
        self.is_slow = False
        self.row: _Row | None = None  # also None if there are too many


class SlowConsumers:
    """Sessions that lag behind."""

    def __init__(self, settings: SlowSettings, clock: Clock) -> None:
        self.configure(settings)
        self._clock = clock
        self.watched: dict[Session, _Watch] = {}
        self._rows: OrderedDict[str, _Row] = OrderedDict()  # by client id, the latest last
        self.count = 0
        """Number of slow clients now."""
        self.total = 0
        """Number of times that a client became slow, since start."""
        self.left_out = 0
        """Slow clients that were not recorded for lack of room."""

    def configure(self, settings: SlowSettings) -> None:
        """Call others slow from now on, or remember them for another time."""
        self._after_s = settings.after_ms / 1000
        self._keep_us = round(settings.keep_s * 1_000_000)
        self._limit = settings.max_clients

    def watch(self, session: Session, policy: Policy) -> None:
        """Something has to wait for a connected session that is not watched yet."""
        self.watched[session] = _Watch(self._clock.monotonic(), policy)

    def note_dropped(self, session: Session, count: int, policy: Policy) -> None:
        """Count dropped messages of a connected session."""
        if session.connection is None:
            return
        self.mark(session, policy)
        row = self.watched[session].row
        if row is not None:
            row.dropped += count

    def dropped_by(self, client_id: str) -> int:
        """Return how many messages a client lost by being slow, as far as recorded."""
        row = self._rows.get(client_id)
        return 0 if row is None else row.dropped

    def mark(self, session: Session, policy: Policy) -> None:
        """A session is slow, whatever the time."""
        if session not in self.watched:
            self.watch(session, policy)
        watch = self.watched[session]
        if not watch.is_slow:
            watch.is_slow = True
            self.count += 1
            self.total += 1
            watch.row = self._begin_row(session, policy)
        elif watch.row is not None:
            watch.row.policy = policy

    def forget(self, session: Session) -> None:
        """Nothing waits for a session any more, or it has gone."""
        watch = self.watched.pop(session, None)
        if watch is None or not watch.is_slow:
            return
        self.count -= 1
        if watch.row is not None:
            watch.row.last_at = self._clock.wall_us()
            watch.row.is_connected = session.connection is not None
            watch.row.recovered = session.connection is not None

    def reap(self, now: float) -> None:
        """Once a second: mark sessions that waited too long, and drop old records."""
        now_us = self._clock.wall_us()
        for session, watch in list(self.watched.items()):
            if session.connection is None or not session.is_waiting:
                self.forget(session)
                continue
            if not watch.is_slow and now - watch.since >= self._after_s:
                self.mark(session, watch.policy)
            if watch.row is not None:
                watch.row.last_at = now_us
        for client_id, row in list(self._rows.items()):
            if row.is_over and now_us - row.last_at >= self._keep_us:
                del self._rows[client_id]

    def clients(self) -> list[SlowClient]:
        """Return present and recent slow clients, the latest last."""
        now, now_us = self._clock.monotonic(), self._clock.wall_us()
        return [self._describe(row, now, now_us) for row in self._rows.values()]

    def _begin_row(self, session: Session, policy: Policy) -> _Row | None:
        """Return the record of a session; an earlier one continues."""
        row, now_us = self._rows.pop(session.client_id, None), self._clock.wall_us()
        if row is not None and row.session.identity.user == session.identity.user:
            row.session, row.policy, row.last_at = session, policy, now_us
            row.is_connected, row.recovered = True, False
        elif len(self._rows) < self._limit or self._drop_oldest():
            row = _Row(session, policy, now_us)
        else:
            self.left_out += 1
            return None
        self._rows[session.client_id] = row
        return row

    def _drop_oldest(self) -> bool:
        """Drop a record of a recovered client to make room, if there is one."""
        oldest = next((client_id for client_id, row in self._rows.items() if row.is_over), None)
        if oldest is not None:
            del self._rows[oldest]
        return oldest is not None

    def _describe(self, row: _Row, now: float, now_us: int) -> SlowClient:
        session = row.session
        watch = self.watched.get(session)
        queues = (
            [queue for queue in (session.outbox, session.offline_queue) if queue] if watch is not None else []
        )
        return SlowClient(
            session.name,
            session.door,
            watch is not None and watch.is_slow,
            row.is_connected,
            row.recovered,
            sum(len(queue) for queue in queues),
            sum(queue.total_bytes for queue in queues),
            0.0 if watch is None else _age_s(session, now_us, now - watch.since),
            row.dropped,
            row.policy,
            row.first_at,
            row.last_at,
        )


def _age_s(session: Session, now_us: int, longest_s: float) -> float:
    """Return the age of the oldest queued message, bounded by the time since the session last caught up."""
    for queue in (session.outbox, session.offline_queue):
        oldest = next(queue.runs(), None) if queue else None
        if oldest is not None:
            return min(max(now_us - oldest.published_at, 0) / 1_000_000, longest_s)
    return longest_s


class LossReport(Struct, frozen=True):
    """Loss report of a session."""

    dropped: int
    expired: int
    waiting: int
    """Messages that wait for it now."""
    limit: int
    """Limit of queued messages."""
    oldest_age_s: float
    """Age of the oldest queued message since its publish."""


def note_loss(session: Session, reason: Reason, count: int) -> None:
    """Count messages that a session did not get because it was slow."""
    if session.losses is None:
        session.losses = LossCounts()
    if reason is Reason.EXPIRED:
        session.losses.expired += count
    else:
        session.losses.dropped += count


class MessageLimit(Protocol):
    """Limit of queued messages at this moment."""

    @property
    def messages(self) -> int: ...


class LossReports:
    """Makes loss reports for doors."""

    def __init__(self, clock: Clock, limit: MessageLimit) -> None:
        self._clock = clock
        self._limit = limit

    def take(self, session: Session) -> LossReport | None:
        """Return losses since the last call, and the queue; None without a loss."""
        losses, session.losses = session.losses, None
        if losses is None:
            return None
        return LossReport(
            losses.dropped,
            losses.expired,
            len(session.outbox or ()),
            limit_of(session, self._limit.messages),
            _outbox_age_s(session, self._clock.wall_us()),
        )


def limit_of(session: Session, most: int) -> int:
    """Return the limit of queued messages of a session, at most `most`."""
    if session.outbox is not None:
        return session.outbox.limits.messages
    return most if session.outbox_messages is None else min(session.outbox_messages, most)


def _outbox_age_s(session: Session, now_us: int) -> float:
    oldest = next(session.outbox.runs(), None) if session.outbox else None
    return 0.0 if oldest is None else max(now_us - oldest.published_at, 0) / 1_000_000
