"""Who cannot keep up, and who could not until a while ago.

A connected session is watched from the moment something has to wait for it until nothing does. It is slow
once that has lasted for `slow.after_ms`, or once something of its was dropped: to wait for the next turn of
the loop is everyday life. Only those who are watched are looked at each second, however many sessions there
are. What is known of somebody is kept for a while after it has caught up or gone.
"""

from collections import OrderedDict

from msgspec import Struct

from penstock.core.clock import Clock
from penstock.core.outbox import Outbox
from penstock.core.owed import StoredOwed
from penstock.core.sessions import Session
from penstock.core.settings import SlowSettings
from penstock.model import Door, Policy


class SlowClient(Struct, frozen=True):
    """One who is slow, or was. Times are wall time in microseconds."""

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
    """How long the oldest message waits for it, while it was connected."""
    dropped: int
    """Messages it lost since `first_slow_at` because it was slow."""
    policy: Policy
    """What happens when its outbox is full; that of the subscription whose messages had to wait last."""
    first_slow_at: int
    last_slow_at: int


class _Row:
    """What is remembered of somebody."""

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
    """Somebody for whom something waits."""

    __slots__ = ("is_slow", "policy", "row", "since")

    def __init__(self, since: float, policy: Policy) -> None:
        self.since = since
        self.policy = policy
        self.is_slow = False
        self.row: _Row | None = None  # also None if there are too many


class Slow:
    """Those who lag behind."""

    def __init__(self, settings: SlowSettings, clock: Clock) -> None:
        self.configure(settings)
        self._clock = clock
        self.watched: dict[Session, _Watch] = {}
        self._rows: OrderedDict[str, _Row] = OrderedDict()  # by client id, the latest last
        self.count = 0
        """How many are slow now."""
        self.total = 0
        """How often somebody became slow since start."""
        self.left_out = 0
        """How often there was no room to remember somebody who became slow."""

    def configure(self, settings: SlowSettings) -> None:
        """Call others slow from now on, or remember them for another time."""
        self._after_s = settings.after_ms / 1000
        self._keep_us = round(settings.keep_s * 1_000_000)
        self._limit = settings.max_clients

    def watch(self, session: Session, policy: Policy) -> None:
        """Something has to wait for a connected session that is not watched yet."""
        self.watched[session] = _Watch(self._clock.monotonic(), policy)

    def note_dropped(self, session: Session, count: int, policy: Policy) -> None:
        """A session lost messages because too many waited; who is not connected is not slow."""
        if session.sink is None:
            return
        self.mark(session, policy)
        row = self.watched[session].row
        if row is not None:
            row.dropped += count

    def dropped_by(self, client_id: str) -> int:
        """How many messages somebody lost by being slow, as far as that is remembered."""
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
            watch.row.is_connected = session.sink is not None
            watch.row.recovered = session.sink is not None

    def reap(self, now: float) -> None:
        """Once a second: see who has waited for too long, who has gone, and whom nobody asks for any more."""
        now_us = self._clock.wall_us()
        for session, watch in list(self.watched.items()):
            if session.sink is None or not session.is_waiting:
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
        """Everyone who is slow or was of late, the latest last."""
        now, now_us = self._clock.monotonic(), self._clock.wall_us()
        return [self._describe(row, now, now_us) for row in self._rows.values()]

    def _begin_row(self, session: Session, policy: Policy) -> _Row | None:
        """The row of a session; one that it had before goes on."""
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
        """Make room at the expense of one who is slow no more, if there is one."""
        oldest = next((client_id for client_id, row in self._rows.items() if row.is_over), None)
        if oldest is not None:
            del self._rows[oldest]
        return oldest is not None

    def _describe(self, row: _Row, now: float, now_us: int) -> SlowClient:
        session = row.session
        watch = self.watched.get(session)
        queues = [queue for queue in (session.outbox, session.owed) if queue] if watch is not None else []
        return SlowClient(
            session.client_id,
            session.door,
            watch is not None and watch.is_slow,
            row.is_connected,
            row.recovered,
            sum(len(queue) for queue in queues),
            sum(_bytes_of(queue) for queue in queues),
            0.0 if watch is None else _age_s(session, now_us, now - watch.since),
            row.dropped,
            row.policy,
            row.first_at,
            row.last_at,
        )


def _bytes_of(queue: Outbox) -> int:
    """What waits in a queue, with what is in the log alone."""
    stored = queue.stored * queue.mean_bytes if isinstance(queue, StoredOwed) else 0
    return queue.bytes + stored


def _age_s(session: Session, now_us: int, longest_s: float) -> float:
    """How long the oldest that waits has waited; not longer than anything waits since it last caught up."""
    for queue in (session.outbox, session.owed):
        oldest = next(queue.runs(), None) if queue else None
        if oldest is not None:
            return min(max(now_us - oldest.published_at, 0) / 1_000_000, longest_s)
    return longest_s
