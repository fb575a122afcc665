"""Drain: brings sessions with queued messages back to the fast path.

A session leaves the fast path when it is offline, slow or catching up, and `queueing.py` queues its messages.
The drainer sends the outbox first, then the offline queue, then retained values. A session that has caught up
gets messages of its shared groups.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from penstock.core.delivery.commit_gate import CommitGate
from penstock.core.delivery.inflight import Inflight
from penstock.core.delivery.offline_fetch import OfflineFetch
from penstock.core.delivery.outbox import Entry
from penstock.core.delivery.ports import ChangeRecorder
from penstock.core.delivery.queueing import Queues
from penstock.core.diagnostics.counters import Counters, way_out
from penstock.core.diagnostics.topic_stats import TopicStats
from penstock.core.ports.connection import Encoding
from penstock.core.ports.log import Log
from penstock.core.runtime.clock import Clock, Scheduler
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup, group_of
from penstock.core.topics.retained_backlog import take_from
from penstock.model import Policy
from penstock.runs import Run, Shape

CHUNK_BYTES = 64 * 1024
CHUNK_ENTRIES = 500
"""Most entries of a chunk, however small they are."""
TURN_BYTES = 4 * CHUNK_BYTES
"""Most bytes that one session drains in one turn, so that others get theirs."""
TURN_STEPS = 100
"""Most retained values that are examined for one session in one turn."""
DRAIN_S = 0.004
"""Time for draining in one turn of the loop; sessions beyond that have their turn in the next."""
LEAST_BYTES = 128
"""Least weight of a message of a shared group, so that a chunk does not have too many."""


class Drainer:
    """Gets to sessions what was kept for them."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        scheduler: Scheduler,
        counters: Counters,
        topic_stats: TopicStats,
        recorder: ChangeRecorder,
        queues: Queues,
        offline_fetch: OfflineFetch,
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._counters = counters
        self._topic_stats = topic_stats
        self._recorder = recorder
        self._is_durable = log.is_durable
        self._queues = queues
        self._drops = queues.drops
        self._slow = queues.slow_consumers
        self.commit_gate = CommitGate(log, recorder, queues.drops, self.drain, self._requeue)
        self._offline_fetch = offline_fetch
        self._ready: dict[Session, None] = {}  # will drain in the next turn
        self._ready_groups: dict[SharedGroup[Session], None] = {}  # will be served in the next turn
        self._is_scheduled = False
        self._ends_at: float | None = None  # when the time of this turn is over, if something was drained

    def window(self, session: Session) -> Inflight:
        """A session's window of deliveries that wait for their acknowledgement."""
        if session.inflight is None:
            session.inflight = Inflight(session.window_limit, session.journal)
        return session.inflight

    def wake(self, session: Session) -> None:
        """Something changed for a session that waits: drain it in the next turn."""
        if session not in self._ready:
            self._ready[session] = None
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.call_soon(self._drain_ready)

    def _drain_ready(self) -> None:
        """Drain groups and sessions, in the order in which they asked, while the turn has time for it.

        At least one of each is drained, so that neither kind waits for the other forever.
        """
        self._is_scheduled = False
        self._begin_turn()
        groups, self._ready_groups = iter(self._ready_groups), {}
        sessions, self._ready = iter(self._ready), {}
        try:
            for group in groups:
                self.serve_group(group)
                if not self._has_time:
                    break
            for session in sessions:
                self._drain(session)
                if not self._has_time:
                    break
        finally:
            self._ready_groups = dict.fromkeys((*groups, *self._ready_groups))
            self._ready = dict.fromkeys((*sessions, *self._ready))
            if self._ready_groups or self._ready:
                self._schedule()

    def _begin_turn(self) -> None:
        self._ends_at = None

    @property
    def _has_time(self) -> bool:
        """The time for draining in this turn is not over."""
        now = self._clock.monotonic()
        if self._ends_at is None:
            self._ends_at = now + DRAIN_S
            if not self._is_scheduled:
                self._scheduler.call_soon(self._begin_turn)
        return now < self._ends_at

    def drain(self, session: Session) -> None:
        """Send what waits, as much as the socket takes; then the session is on the fast path again.

        In a turn that has spent its time on other sessions it is done in the next.
        """
        if self._has_time:
            self._drain(session)
        else:
            self.wake(session)

    def _drain(self, session: Session) -> None:
        if session.position is not None:
            self._recorder.touch(session)
        self._send_waiting(session)
        if session.groups and (session.is_flowing or session.credit):
            self.serve_groups(session)
        if session.catch_ups is not None and session.keeps_up:
            session.catch_ups.resume()

    def write(self, dirty: Iterable[Session]) -> None:
        """Write what was gathered for sessions in this flush, then what sessions with credit get."""
        for session in dirty:
            parts = session.parts
            if not parts:
                continue  # all of it was too large, or it is written already
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            if session.first_uncommitted_id:
                self.commit_gate.write(session, data)
            elif session.connection is not None:
                session.connection.write(data)
        if self._queues.credited:
            self._drain_credited()
        if self._queues.too_slow:
            self._queues.close_slow()

    def _drain_credited(self) -> None:
        """Send what sessions with credit have credit for, completely, as on the fast path."""
        credited, self._queues.credited = self._queues.credited, {}
        now = self._clock.monotonic()
        for session, entries in credited.items():
            if session.credit is not None:  # it is taken again from what leaves
                session.credit += sum(run.count for run, _ in entries)
            if session.can_take:
                self.send(session, entries, now)
            else:
                self._queues.put_first(session, entries)
            self._unblock(session)
            self._watch(session)
            if session.catch_ups is not None:
                self.wake(session)  # not now: a flush is no time to read

    def grant(self, session: Session, messages: int) -> None:
        """Add credit for this many messages; the first grant switches a session to credit."""
        session.credit = (session.credit or 0) + messages
        session.is_flowing = False
        self.drain(session)

    def _send_waiting(self, session: Session) -> None:
        budget, steps = TURN_BYTES, TURN_STEPS
        now = self._clock.monotonic()
        while session.can_take and session.credit != 0:
            if budget <= 0 or steps <= 0 or (budget < TURN_BYTES and not self._has_time):
                self.wake(session)
                break
            entries, steps = self._next_entries(session, steps, now)
            if entries:
                sent, is_blocked = self.send(session, entries, now)
                budget -= sent
                if is_blocked:
                    break
            elif not session.is_waiting:
                if session.backlog is not None:
                    session.backlog = None
                    self._recorder.save(session)
                session.is_flowing = session.credit is None
                break
        if session.outbox is not None:
            session.outbox.settle()
        self._unblock(session)
        self._watch(session)

    def _watch(self, session: Session) -> None:
        """See whether a session lags behind now."""
        is_watched = session in self._slow.watched
        if session.keeps_up:
            if is_watched:
                self._slow.forget(session)
        elif not is_watched and session.connection is not None and session.is_waiting:
            wanted = next(iter(session.subscriptions.values()), None)
            self._slow.watch(session, Policy.DROP_NEWEST if wanted is None else wanted.policy)

    def _unblock(self, session: Session) -> None:
        backpressure = self._queues.backpressure
        if backpressure.is_awaited(session) and not (session.outbox and session.outbox.is_over):
            backpressure.unblock(session)

    def _next_entries(self, session: Session, steps: int, now: float) -> tuple[list[Entry], int]:
        """Return the next entries to send, and the steps that remain."""
        if session.outbox:
            return session.outbox.take(CHUNK_BYTES, CHUNK_ENTRIES), steps
        offline_queue = session.offline_queue
        if offline_queue is not None and offline_queue.has_to_fetch:
            self._offline_fetch.fetch(session, offline_queue, self.drain)
            return [], steps
        if offline_queue:
            return offline_queue.take(CHUNK_BYTES, CHUNK_ENTRIES), steps
        if session.backlog:
            return take_from(session.backlog, CHUNK_BYTES, steps, now)
        return [], steps

    def send(self, session: Session, entries: Sequence[Entry], now: float) -> tuple[int, bool]:
        """Send entries in order. Returns the bytes sent, and whether window or credit stopped it."""
        parts: list[bytes] = []
        rest: list[Entry] = []
        for (encoding, shape), stretch in groupby(entries, _form_and_shape):
            if rest:
                rest += stretch
                continue
            runs = self._alive(session, [run for run, _ in stretch], now)
            if shape.qos and encoding.qos:
                rest += [(run, encoding) for run in self._number(session, runs, encoding, now, parts)]
                continue
            if session.credit is not None:
                runs, over = split(runs, session.credit)
                session.credit -= _count(runs)
                rest += [(run, encoding) for run in over]
            if runs:
                parts.append(encoding.encode(runs, now))
                self._topic_stats.add(runs)
                lost = self._note_oversize(session, runs, encoding, now)
                self._counters.delivered_at[way_out(shape, session.door)] += _count(runs) - lost
        self._queues.put_first(session, rest)
        data = b"".join(parts)
        if data:
            self.commit_gate.write(session, data)
        return len(data), bool(rest)

    def _alive(self, session: Session, runs: list[Run], now: float) -> list[Run]:
        """The runs that have not expired; the others are recorded."""
        expired = [run for run in runs if run.is_expired(now)]
        if expired:
            self._drops.expire_all(expired, session)
        return [run for run in runs if not run.is_expired(now)] if expired else runs

    def _number(
        self, session: Session, runs: list[Run], encoding: Encoding, now: float, parts: list[bytes]
    ) -> list[Run]:
        """Send as many messages of one shape as the window takes; return the rest."""
        inflight, group = self.window(session), group_of(encoding)
        share = None if group is None else group.filter
        while runs and (room := inflight.room):
            sendable, runs = split(runs, room) if len(runs) > 1 or runs[0].count > room else (runs, [])
            level = min(sendable[0].shape.qos, encoding.qos)
            frames = encoding.frames(sendable, now)
            first = inflight.add_all(frames, encoding, level, parts, share)
            if self._is_durable:
                self.commit_gate.note(session, first, level)
            self._counters.delivered_at[way_out(sendable[0].shape, session.door)] += len(frames)
            self._topic_stats.add(sendable)
            if encoding.limit_bytes:
                self._note_oversize(session, sendable, encoding, now)  # these take no room in the window
        return runs

    def _note_oversize(self, session: Session, runs: list[Run], encoding: Encoding, now: float) -> int:
        """Record messages that exceed the size limit; return their number."""
        lost = encoding.oversize(runs, now) if encoding.limit_bytes else []
        for part in lost:
            self._drops.refuse_size(part, session)
        self._topic_stats.add(lost, -1)
        return sum(part.count for part in lost)

    def _requeue(self, session: Session, entries: Sequence[Entry]) -> None:
        """Queue deliveries again whose commit failed: for this session, or for their shared group."""
        self._queues.put_first(session, self._queues.return_to_groups(entries))
        self._recorder.touch(session)
        self.serve_groups(session)

    # Shared groups

    def serve_groups(self, session: Session) -> None:
        """Serve the shared groups of a session: it came, went, or caught up."""
        for group in list(session.groups or ()):
            self.serve_group(group)

    def serve_group(self, group: SharedGroup[Session]) -> None:
        """Give queued messages of a shared group to members that keep up."""
        while group.offline_queue and self._serve_chunk(group):
            if group.offline_queue and not self._has_time:
                self._ready_groups[group] = None
                self._schedule()
                break

    def _serve_chunk(self, group: SharedGroup[Session]) -> bool:
        """Give about one chunk, so that full sockets are noticed. Returns False if no member keeps up."""
        now = self._clock.monotonic()
        dirty: list[Session] = []
        size, is_stuck = 0, False
        while group.offline_queue and size < CHUNK_BYTES and not is_stuck:
            ((run, encoding),) = group.offline_queue.take(0)
            size += max(len(run.slab), LEAST_BYTES)
            if run.is_expired(now):
                self._drops.expire_in_group((run,), group)
                given = run.count
            else:
                given = self._hand_out(group, run, now, dirty)
            if given < run.count:
                group.offline_queue.add_first(run.part(given, run.count - given), encoding)
                is_stuck = True
            else:
                group.forget((run,))
        self._recorder.touch_group(group)
        self.write(dirty)
        return not is_stuck

    def _hand_out(self, group: SharedGroup[Session], run: Run, now: float, dirty: list[Session]) -> int:
        """Give the messages of a run to members that keep up; return how many were given."""
        for index in range(run.count):
            session = group.choose()
            if session is None:
                return index
            self.give(group, session, run.part(index, 1), now, dirty)
        return run.count

    def give(
        self, group: SharedGroup[Session], session: Session, message: Run, now: float, dirty: list[Session]
    ) -> bool:
        """Give one message of a shared group to a member. Returns False if it has to wait there.

        Its bytes are written with those of the other `dirty` sessions.
        """
        subscription = group.members[session]
        encoding, runs = subscription.encoding, [message]
        if session.is_flowing:
            parts = session.parts
            if not parts:
                dirty.append(session)
            if not (message.shape.qos and encoding.qos):
                parts.append(encoding.encode(runs, now))
                self._topic_stats.add_one(message)
                lost = self._note_oversize(session, runs, encoding, now) if encoding.limit_bytes else 0
                self._counters.delivered_at[way_out(message.shape, session.door)] += message.count - lost
                return True
            if not self._number(session, runs, encoding, now, parts):
                return True
            self.wake(session)  # its window is full
        self._queues.enqueue_all(session, runs, encoding, subscription)
        return False

    # Ends

    def detach(self, session: Session) -> list[SharedGroup[Session]]:
        """Detach a session that lost its connection.

        Returns the groups whose other members may get something.
        """
        session.is_coming = session.is_flowing = session.is_paused = session.is_fetching = False
        session.parts.clear()
        if session.catch_ups is not None:
            session.catch_ups.stop()
        for group in session.groups or ():
            group.depart(session)
        self._ready.pop(session, None)
        self._slow.forget(session)
        groups = self._queues.requeue_offline(session)
        session.first_uncommitted_id = 0
        return groups

    def reap(self, now: float) -> bool:
        """Take out of some queues what has expired. Returns whether there are more."""
        looked_at, has_more = self._queues.expiry.reap(now)
        for session in looked_at:
            if session.connection is not None and not session.is_flowing:
                self.wake(session)  # perhaps nothing waits any more
        return has_more


def _form_and_shape(entry: Entry) -> tuple[Encoding, Shape]:
    return entry[1], entry[0].shape


def _count(runs: list[Run]) -> int:
    return sum(run.count for run in runs)


def split(runs: list[Run], room: int) -> tuple[list[Run], list[Run]]:
    """As many messages as there is room for, and the rest; a run may be cut."""
    for position, run in enumerate(runs):
        if run.count > room:
            cut = [run.part(0, room)] if room else []
            return runs[:position] + cut, [run.part(room, run.count - room), *runs[position + 1 :]]
        room -= run.count
    return runs, []
