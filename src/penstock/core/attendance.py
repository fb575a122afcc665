"""Who comes, goes, is taken over, returns, or stays away too long; and the wills they leave."""

import heapq
from collections.abc import Callable

from msgspec import Struct

from penstock.core import reforming
from penstock.core.access import Identity
from penstock.core.away import AwayForm
from penstock.core.moves import FORGOTTEN, RECEIVED, step
from penstock.core.node import Node
from penstock.core.ports import Form, Sink, Ticket
from penstock.core.publishing import Publishing
from penstock.core.records import SessionRecord
from penstock.core.sessions import FOREVER, Ending, Session, Subscription, Will
from penstock.core.standing import stand_of
from penstock.core.subscribing import Subscribing
from penstock.core.topics import check_topic, is_reserved
from penstock.core.wills import Wills
from penstock.errors import (
    NotAuthorized,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
)
from penstock.model import Door, Reason, Run

STALE_DEADLINES = 1_000
"""How many deadlines of sessions that came back may wait for their time before they are cleared away."""


class Arrival(Struct, frozen=True):
    """Who connects, and what it wants to be remembered of it."""

    identity: Identity
    door: Door
    clean: bool = True
    expiry: float = 0.0
    window_limit: int = 1
    will: Will | None = None
    wire: object = None


class Attendance:
    """Sessions and their connections."""

    def __init__(self, node: Node, publishing: Publishing, subscribing: Subscribing) -> None:
        self._node = node
        self._publishing = publishing
        self._subscribing = subscribing
        self.wills = Wills(node, publishing)
        self._deadlines: list[tuple[float, int, Session]] = []  # of absent sessions and late wills
        self._deadline_number = 0

    def connect(self, arrival: Arrival, sink: Sink, reform: Callable[[Form], Form]) -> tuple[Session, bool]:
        """Give a client its session, an old one if it has one and wants it, in one step.

        Whoever holds the session now is taken over. The door then sends what is on its way again and
        calls `resume`. `reform` remakes a form for this connection's wire, if that is another than the
        last one's. Answers the session and whether it was known.

        Raises:
            QuotaExceeded: there are too many sessions.
            ShuttingDown: the server is about to stop.
            StorageUnavailable: the session could not be stored now.
        """
        if self._publishing.is_stopping:
            raise ShuttingDown("the server is about to stop")
        self._check_storage(arrival)
        client_id = arrival.identity.client_id
        session = self._node.sessions.get(client_id)
        is_recorded = session is not None and session.is_recorded
        had_record = is_recorded or self._node.recording.has_stale_record(client_id)
        if session is not None:
            is_foreign = session.identity.user != arrival.identity.user  # never shown to someone else
            if session.sink is not None:
                self._take_over(session)
            if arrival.clean or is_foreign or not session.is_persistent:
                self.end(session)
                session = None
        is_known = session is not None
        if session is None:
            if len(self._node.sessions) >= self._node.settings.sessions.max_sessions:
                raise QuotaExceeded(f"there are {len(self._node.sessions)} sessions already")
            session = self._node.sessions[client_id] = Session(arrival.identity, arrival.door)
            session.born = self._node.recording.next_move
        session.identity = arrival.identity
        session.expiry = min(arrival.expiry, self._node.settings.sessions.max_expiry_s)
        session.expires_at, session.left_at = FOREVER, None
        self._node.recording.begin(session)
        if session.will is not None:
            self._settle_old_will(session)
        session.will, session.will_due = arrival.will, FOREVER
        session.window_limit = arrival.window_limit
        if session.inflight is not None:
            session.inflight.limit = arrival.window_limit
        session.attach(sink)
        session.connected_at = self._node.clock.wall_us()
        for group in session.groups or ():
            group.arrive(session)
        if is_known and session.wire != arrival.wire:
            self._reform(session, reform)
        session.wire = arrival.wire
        self._node.counters.connections += 1
        if session.is_persistent or session.will is not None or is_known:
            self._node.recording.save(session)
        session.is_promised = had_record or session.moves is not None or session.will is not None
        return session, is_known

    def _check_storage(self, arrival: Arrival) -> None:
        """Let no one in whose session is stored while nothing can be: what it had may not be safe yet."""
        is_wanted = arrival.expiry > 0 or not arrival.clean or arrival.will is not None
        if self._node.recording.is_on and is_wanted and self._node.log.failure is not None:
            raise StorageUnavailable(str(self._node.log.failure))

    def resume(self, session: Session) -> None:
        """What is on its way has been sent again: go on with what is owed, then with live messages."""
        session.is_coming = False
        if session.is_waiting:
            self._node.lagging.wake(session)
        else:
            session.is_flowing = not session.is_paused and session.credit is None
            self._node.delivery.serve_groups(session)
            if session.joins is not None:
                session.joins.go_on()

    def disconnect(
        self, session: Session, sink: Sink, *, is_graceful: bool, expiry: float | None = None
    ) -> None:
        """A connection ended. It may be one that was taken over long ago; then nothing happens."""
        if session.sink is not sink:
            return
        if expiry is not None:
            session.expiry = min(expiry, self._node.settings.sessions.max_expiry_s)
        if is_graceful:
            session.will = None
        self._detach(session)
        now = self._node.clock.monotonic()
        if not session.is_persistent:
            self.end(session)
            return
        session.left_at = self._node.clock.wall_us()
        self._await_return(session, now, now)
        self._publish_due_will(session, now)
        self._node.recording.save(session)

    def end_unknown(self) -> None:
        """Who may come in has changed: end the sessions of those who could not come in any more.

        Whose password was replaced has to come again with the new one, and finds its session then.
        """
        access = self._node.access
        for session in list(self._node.sessions.values()):
            is_known, sink = access.is_known(session.identity), session.sink
            if is_known and (sink is None or not access.is_outdated(session.identity)):
                continue
            session.is_resumable = session.is_resumable and is_known
            if sink is not None:
                self._turn_out(session, sink, Ending.UNKNOWN)
            if not is_known and self._node.sessions.get(session.client_id) is session:
                self.end(session)

    def dismiss(self, session: Session) -> bool:
        """End the connection of a session because somebody asked for it; False if it had none.

        The session is as if its connection had been lost: it may return, and its will is due.
        """
        if session.sink is None:
            return False
        self._turn_out(session, session.sink, Ending.ADMINISTRATIVE)
        return True

    def _turn_out(self, session: Session, sink: Sink, ending: Ending) -> None:
        self.disconnect(session, sink, is_graceful=False)
        sink.close(ending)

    def restore(self, client_id: str, record: SessionRecord) -> Session:
        """At start: a session that outlived the server. It is away, since it left or since now."""
        session = Session(Identity(record.user, client_id, record.is_certified), record.door)
        session.expiry, session.will, session.born = record.expiry, record.will, record.born
        session.former = record.former
        session.is_recorded = True
        self._node.sessions[client_id] = session
        for filter, wanted in record.subscriptions.items():
            form = AwayForm((wanted.options,))
            subscription = Subscription(filter, wanted.options, form, wanted.policy, wanted.since)
            session.subscriptions[filter] = subscription
            self._node.counters.subscriptions_added += 1
            self._node.router.open_group(filter).join(session, subscription)
        now, wall_us = self._node.clock.monotonic(), self._node.clock.wall_us()
        away_s = 0.0 if record.left_at is None else max(wall_us - record.left_at, 0) / 1_000_000
        session.left_at = wall_us if record.left_at is None else record.left_at
        self._await_return(session, now, now - away_s)
        self._node.recording.begin(session)
        if record.left_at is None:
            self._node.recording.save(session)  # its time goes on, however often the server starts
        return session

    def _await_return(self, session: Session, now: float, left: float) -> None:
        """Wait for a session that left a while ago; what it has left of its time begins now at the latest."""
        session.expires_at = max(left + session.expiry, now)
        self._set_deadline(session.expires_at, session)
        if session.will is not None:
            session.will_due = max(left + min(session.will.delay, session.expiry), now)
            self._set_deadline(session.will_due, session)

    def position_of(self, session: Session) -> int:
        """The offset up to which everything that a session wanted has left, or is accounted for.

        Once its connection has ended this is how far it had got then. What was given to its sink has left;
        retained values and shared filters do not count.
        """
        if session.sink is None and session.stood_at is not None:
            return session.stood_at
        return stand_of(session, self._node.history.head, self._node.tick.first_offset)

    def pause(self, session: Session) -> None:
        """The session's socket is full."""
        session.is_paused = True
        session.is_flowing = False

    def unpause(self, session: Session) -> None:
        """The session's socket takes data again."""
        session.is_paused = False
        self._node.lagging.drain(session)

    def acknowledge(self, session: Session, number: int) -> bool:
        """A delivery is complete. False if its number is not known."""
        inflight = session.inflight
        if inflight is None or not inflight.complete(number):
            return False
        self._node.recording.touch(session)
        if not session.is_flowing:
            self._node.lagging.wake(session)
        elif session.groups:
            self._node.delivery.serve_groups(session)
        return True

    def receive(self, session: Session, number: int) -> bool:
        """A delivery at QoS 2 has arrived: its message is done, its number is not. False if unknown."""
        is_known = session.inflight is not None and session.inflight.release(number)
        if is_known:
            self._node.recording.touch(session, is_urgent=True)
        return is_known

    def take_in(self, session: Session, number: int, ticket: Ticket | None) -> None:
        """A client's message at QoS 2 was published; it may send it again until it says that it will not."""
        if session.received is None:
            session.received = {}
        session.received[number] = ticket
        self._node.recording.note_step(session, step(number, RECEIVED))

    def let_go(self, session: Session, number: int) -> bool:
        """A client will not send its message at QoS 2 again. False if its number is not known."""
        if session.received is None or number not in session.received:
            return False
        del session.received[number]
        self._node.recording.note_step(session, step(number, FORGOTTEN))
        return True

    def refuse(self, session: Session, number: int) -> bool:
        """The subscriber refused a delivery: it is over, and recorded. False if its number is not known."""
        pending = session.inflight.entries.get(number) if session.inflight else None
        if pending is not None:
            self._node.ledger.add(pending.run, session.client_id, Reason.REFUSED)
        return self.acknowledge(session, number)

    def note_given_up(self, session: Session, run: Run, reason: Reason) -> None:
        """A delivery was not sent again."""
        self._node.ledger.add(run, session.client_id, reason)
        self._node.recording.touch(session)

    def _take_over(self, session: Session) -> None:
        """End the present connection of a session that another one claims."""
        self._node.counters.takeovers += 1
        sink = session.sink
        assert sink is not None
        self._detach(session)
        sink.close(Ending.TAKEN_OVER)

    def _detach(self, session: Session) -> None:
        session.stood_at = self.position_of(session)
        session.sink = None
        self._node.counters.disconnections += 1
        session.topics.clear()
        for group in self._node.lagging.detach(session):
            self._node.delivery.serve_group(group)  # what it had not acknowledged goes to the others

    def end(self, session: Session) -> None:
        """Forget a session and everything it still wanted."""
        for filter in list(session.subscriptions):
            self._subscribing.leave(session, filter)
        self._node.keeping.end(session)
        if self._node.sessions.get(session.client_id) is session:
            del self._node.sessions[session.client_id]
            self._node.recording.forget(session)
        if session.will is not None:
            self._publish_will(session)

    def _reform(self, session: Session, reform: Callable[[Form], Form]) -> None:
        """The client came back on another wire: remake every form it had."""
        for filter, old in list(session.subscriptions.items()):
            new = Subscription(filter, old.options, reform(old.form), old.policy, old.since)
            group = self._node.router.open_group(filter)
            group.leave(session, old)
            session.subscriptions[filter] = new
            group.join(session, new)
        reforming.reform(session, reform)

    # Wills

    def _settle_old_will(self, session: Session) -> None:
        """A session goes on with a new connection: a will that was to come at once still comes."""
        if session.will is not None and not session.will.delay:
            self._publish_will(session)

    def _publish_due_will(self, session: Session, now: float) -> None:
        if session.will is not None and session.will_due <= now:
            self._publish_will(session)

    def _publish_will(self, session: Session) -> None:
        will, session.will = session.will, None
        assert will is not None
        self._node.recording.save(session)
        self.wills.publish(session, will)

    def check_will(self, identity: Identity, will: Will) -> None:
        """Refuse a will that could not be published."""
        check_topic(will.topic, self._node.settings.topic)
        if is_reserved(will.topic) or not self._node.access.may_publish(identity, will.topic):
            raise NotAuthorized(f"not allowed to publish to {will.topic}")

    # Time

    def reap(self, now: float) -> None:
        """End the sessions, and publish the wills, whose time has come."""
        self.wills.publish_kept()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, session = heapq.heappop(self._deadlines)
            if session.sink is None and self._node.sessions.get(session.client_id) is session:
                self._publish_due_will(session, now)
                if session.expires_at <= now:
                    self._node.counters.sessions_expired += 1
                    self.end(session)

    def _set_deadline(self, when: float, session: Session) -> None:
        self._deadline_number += 1
        heapq.heappush(self._deadlines, (when, self._deadline_number, session))
        if len(self._deadlines) > 4 * len(self._node.sessions) + STALE_DEADLINES:
            self._forget_stale_deadlines()

    def _forget_stale_deadlines(self) -> None:
        away = [session for session in self._node.sessions.values() if session.sink is None]
        self._deadlines = []
        for session in away:
            for when in (session.expires_at, session.will_due):
                if when < FOREVER:
                    self._deadline_number += 1
                    self._deadlines.append((when, self._deadline_number, session))
        heapq.heapify(self._deadlines)
