"""Session lifecycle: connect, takeover, disconnect, expiry, and the wills that follow."""

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from penstock.common.topics import check_topic, is_reserved
from penstock.core.access.identity import Identity
from penstock.core.delivery.reencoding import PendingEncoding
from penstock.core.durability.records import SessionRecord
from penstock.core.node import Node
from penstock.core.ports.connection import ConnectionPort, Encoding
from penstock.core.publishing.publish import Publisher
from penstock.core.runtime.deadlines import WAITS_PER_SECOND, Deadlines
from penstock.core.sessions.progress import progress_of
from penstock.core.sessions.session import FOREVER, Ending, Session
from penstock.core.sessions.wills import Wills
from penstock.core.sessions.wire_changes import WireChanges
from penstock.core.subscriptions.subscribe import Subscriber
from penstock.core.subscriptions.subscription import Subscription
from penstock.errors import (
    ClientIdTaken,
    NotAuthorized,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
)
from penstock.model import Door, Will

SESSIONS_A_STEP = 20
"""Offline sessions that are examined in one step."""
FEW_MESSAGES = 100
"""Queued messages that are moved to the offline queue at once; more than these, in background steps."""


class Arrival(Struct, frozen=True):
    """Connection request: the identity, and what the session should keep."""

    identity: Identity
    door: Door
    clean: bool = True
    expiry: float = 0.0
    window_limit: int = 1
    will: Will | None = None
    wire: object = None
    rights: Identity | None = None
    """Identity that rights are decided for, if it differs from that of the session."""
    outbox_messages: int | None = None
    """Limit of the outbox, if it differs from the settings."""
    credit: int | None = None
    """Messages that the client takes before it grants more; None for a client without credit."""
    is_resumable: bool = False
    """The door keeps a position for the client, so that its queue may be replayed after a loss."""


class SessionService:
    """Sessions and their connections."""

    def __init__(self, node: Node, publishing: Publisher, subscribing: Subscriber) -> None:
        self._node = node
        self._publishing = publishing
        self._subscribing = subscribing
        self.wills = Wills(node, publishing)
        self._deadlines: Deadlines[Session] = Deadlines(WAITS_PER_SECOND)  # of offline sessions
        self._leaving: dict[Session | None, Callable[[], bool]] = {}  # whose connection ended; detaches them
        self._lost: dict[Session, ConnectionPort] = {}  # ended in the middle of a delivery, in this turn
        self._detach_soon = self.disconnect_soon  # one object for all sessions
        self._wire_changes = WireChanges(node, self.resume)

    def connect(
        self, arrival: Arrival, connection: ConnectionPort, reencode: Callable[[Encoding], Encoding]
    ) -> tuple[Session, bool]:
        """Attach a connection to the session of its client, and take over an older connection.

        The door then resends the messages in flight and calls `resume`. `reencode` adapts an encoding to the
        wire of this connection, if it differs from the last one. Returns the session, and whether it existed.

        Raises:
            ClientIdTaken: the session of this client id belongs to another user.
            QuotaExceeded: there are too many sessions.
            ShuttingDown: the server is about to stop.
            StorageUnavailable: the session cannot be stored now.
        """
        if self._publishing.is_stopping:
            raise ShuttingDown("the server is about to stop")
        self._check_storage(arrival)
        self.check_owner(arrival.identity)
        client_id = arrival.identity.client_id
        session = self._node.sessions.get(client_id)
        if session in self._leaving:
            self._leaving[session]()
            session = self._node.sessions.get(client_id)
        is_recorded = session is not None and session.is_recorded
        had_record = is_recorded or self._node.recorder.has_stale_record(client_id)
        if session is not None:
            # Never shown to another user, where names prove nothing or others may take over.
            is_foreign = session.identity.user != arrival.identity.user
            if session.connection is not None:
                self._take_over(session)
            if arrival.clean or is_foreign or not session.is_persistent:
                self.end(session)
                session = None
        is_known = session is not None
        if session is None:
            if len(self._node.sessions) >= self._node.settings.sessions.max_sessions:
                raise QuotaExceeded(f"there are {len(self._node.sessions)} sessions already")
            session = self._node.sessions[client_id] = Session(arrival.identity, arrival.door)
            session.born = self._node.recorder.next_move
        session.identity = arrival.rights or arrival.identity
        self._node.clients.enter(session)
        session.expiry = min(arrival.expiry, self._node.settings.sessions.max_expiry_s)
        session.expires_at, session.left_at = FOREVER, None
        self._node.recorder.begin(session)
        if session.will is not None:
            self._settle_old_will(session)
        session.will, session.will_due = arrival.will, FOREVER
        session.window_limit = arrival.window_limit
        if session.inflight is not None:
            session.inflight.limit = arrival.window_limit
        session.attach(connection, self._detach_soon)
        session.outbox_messages, session.credit = arrival.outbox_messages, arrival.credit
        session.is_resumable = arrival.is_resumable
        session.connected_at = self._node.clock.wall_us()
        for group in session.groups or ():
            group.arrive(session)
        self._wire_changes.begin(session, arrival.wire, reencode)
        self._node.counters.connections += 1
        if session.is_persistent or session.will is not None or is_known:
            self._node.recorder.save(session)
        session.is_promised = had_record or session.journal is not None or session.will is not None
        self._node.audit.record_session("connected", session, resumed=is_known)
        return session, is_known

    def check_owner(self, identity: Identity) -> None:
        """Check that the session of a client id may be taken over. A session without a user has no owner.

        Raises:
            ClientIdTaken: it belongs to another user.
        """
        session = self._node.sessions.get(identity.client_id)
        if session is None or self._node.settings.sessions.takeover_by_other_users:
            return
        owner = self._node.access.proven_user(session.identity)
        if owner is not None and owner != self._node.access.proven_user(identity):
            raise ClientIdTaken("the session of this client id belongs to another user")

    def _check_storage(self, arrival: Arrival) -> None:
        """Let no one in whose session is stored while nothing can be: what it had may not be safe yet."""
        is_wanted = arrival.expiry > 0 or not arrival.clean or arrival.will is not None
        if is_wanted and self._node.log.failure is not None:
            raise StorageUnavailable(str(self._node.log.failure))

    def resume(self, session: Session) -> None:
        """Continue with queued, then with live messages: the messages in flight have been resent.

        A session whose filters are still being re-encoded continues after that.
        """
        if self._wire_changes.postpones(session):
            return
        session.is_coming = False
        if session.is_waiting:
            self._node.drainer.wake(session)
        else:
            session.is_flowing = not session.is_paused and session.credit is None
            self._node.drainer.serve_groups(session)
            if session.catch_ups is not None:
                session.catch_ups.resume()

    def disconnect(
        self, session: Session, connection: ConnectionPort, *, is_graceful: bool, expiry: float | None = None
    ) -> None:
        """A connection ended. It may be one that was taken over long ago; then nothing happens."""
        if session.connection is not connection:
            return
        if expiry is not None:
            session.expiry = min(expiry, self._node.settings.sessions.max_expiry_s)
        if is_graceful:
            session.will = None
        if self._is_quick_to_leave(session):
            self._leave(session)
        else:
            self.pause(session)  # what is published until it is detached cannot reach it
            self._leaving[session] = partial(self._leave_if_there, session, connection)
            self._node.endings.add(self._leaving[session])

    def _is_quick_to_leave(self, session: Session) -> bool:
        """Return whether a disconnection costs little: few messages are queued, or all are lost at once."""
        queued = 0 if session.outbox is None else session.outbox.messages
        queued += 0 if session.inflight is None else len(session.inflight)
        if queued <= FEW_MESSAGES:
            return True
        return not (session.is_persistent or session.groups or self._node.drops.is_behind)

    def _leave_if_there(self, session: Session, connection: ConnectionPort) -> bool:
        """Step of background work: detach a session, unless that was done meanwhile."""
        if self._leaving.pop(session, None) is not None and session.connection is connection:
            self._leave(session)
        return False

    def _leave(self, session: Session) -> None:
        self._leaving.pop(session, None)  # it may have been reported twice
        self._detach(session)
        now = self._node.clock.monotonic()
        if not session.is_persistent:
            self.end(session)
            return
        session.left_at = self._node.clock.wall_us()
        self._await_return(session, now, now)
        self._publish_due_will(session, now)
        self._node.recorder.save(session)

    def disconnect_soon(
        self, session: Session, connection: ConnectionPort, *, is_final: bool = False
    ) -> None:
        """Detach a connection that ended in the middle of a delivery, in the next turn of the loop.

        Args:
            is_final: the client does not resume, so what still waits for it is lost.
        """
        if session.connection is not connection:
            return
        if is_final:
            session.is_resumable = False
        self.pause(session)  # what is published until then cannot reach it
        if not self._lost:
            self._node.scheduler.call_soon(self._detach_lost)
        self._lost[session] = connection  # an earlier one of this turn was taken over

    def _detach_lost(self) -> None:
        lost, self._lost = self._lost, {}
        for session, connection in lost.items():
            self._node.endings.add(partial(self._disconnect_lost, session, connection))

    def _disconnect_lost(self, session: Session, connection: ConnectionPort) -> bool:
        """Step of background work: detach a session whose connection ended in the middle of a delivery."""
        self.disconnect(session, connection, is_graceful=False)
        return False

    def end_unknown(self) -> None:
        """End the sessions of users that are no longer known.

        Users whose password or keys changed are disconnected; their session is kept.
        """
        access = self._node.access
        for session in list(self._node.sessions.values()):
            is_known, connection = access.is_known(session.identity), session.connection
            if is_known and (connection is None or not access.is_outdated(session.identity)):
                continue
            session.is_resumable = session.is_resumable and is_known
            if connection is not None:
                self._turn_out(session, connection, Ending.UNKNOWN)
            if not is_known and self._node.sessions.get(session.client_id) is session:
                self.end(session)

    def dismiss(self, session: Session, *, ends_session: bool = False) -> bool:
        """End the connection of a session by an operator's request. Returns False if it had none.

        The session is kept as after a lost connection: the client may return, and its will is due.

        Args:
            ends_session: end the session, too, with its subscriptions and its queue.
        """
        connection = session.connection
        if connection is not None:
            ending = Ending.SESSION_ENDED if ends_session else Ending.ADMINISTRATIVE
            self._turn_out(session, connection, ending)
        if ends_session and self._node.sessions.get(session.client_id) is session:
            self.end(session)
        return connection is not None

    def _turn_out(self, session: Session, connection: ConnectionPort, ending: Ending) -> None:
        self.disconnect(session, connection, is_graceful=False)
        connection.close(ending)

    def close_all(self) -> None:
        """End every connection at the end of the server; wills and sessions stay as they are."""
        for session in list(self._node.sessions.values()):
            connection, session.last_position = session.connection, self.position_of(session)
            if connection is not None:
                self._node.audit.record_session("disconnected", session)
            session.connection = None
            if connection is not None:
                self._node.counters.disconnections += 1
                self._node.drainer.detach(session)
                session.left_at = self._node.clock.wall_us()
                self._node.recorder.save(session)
                connection.close(Ending.SHUTTING_DOWN)

    def restore(self, client_id: str, record: SessionRecord) -> Session:
        """Recover a stored session; it is offline since its disconnection, or since now."""
        session = Session(Identity(record.user, client_id, record.is_certified), record.door)
        session.expiry, session.will, session.born = record.expiry, record.will, record.born
        session.past_subscriptions = record.past_subscriptions
        session.is_recorded = True
        self._node.sessions[client_id] = session
        for filter, wanted in record.subscriptions.items():
            encoding = PendingEncoding((wanted.options,))
            subscription = Subscription(filter, wanted.options, encoding, wanted.policy, wanted.since)
            session.subscriptions[filter] = subscription
            self._node.counters.subscriptions_added += 1
            self._node.router.open_group(filter).join(session, subscription)
        now, wall_us = self._node.clock.monotonic(), self._node.clock.wall_us()
        away_s = 0.0 if record.left_at is None else max(wall_us - record.left_at, 0) / 1_000_000
        session.left_at = wall_us if record.left_at is None else record.left_at
        self._await_return(session, now, now - away_s)
        self._node.recorder.begin(session)
        if record.left_at is None:
            self._node.recorder.save(session)  # its time continues, however often the server starts
        return session

    def _await_return(self, session: Session, now: float, left: float) -> None:
        """Wait for a session that left a while ago; what it has left of its time begins now at the latest."""
        session.expires_at = max(left + session.expiry, now)
        if session.will is not None:
            session.will_due = max(left + min(session.will.delay, session.expiry), now)
        self._set_deadline(session)

    def position_of(self, session: Session) -> int:
        """Return the offset up to which everything for a session was sent or is accounted for.

        After a disconnection this is the position at that time. Bytes given to the connection count as sent;
        retained values and shared filters do not count.
        """
        if session.connection is None and session.last_position is not None:
            return session.last_position
        return progress_of(session, self._node.history.head, self._node.tick.first_offset)

    def pause(self, session: Session) -> None:
        """The session's socket is full."""
        session.is_paused = True
        session.is_flowing = False

    def unpause(self, session: Session) -> None:
        """The session's socket takes data again."""
        session.is_paused = False
        self._node.drainer.drain(session)

    def _take_over(self, session: Session) -> None:
        """End the present connection of a session that another one claims."""
        self._node.counters.takeovers += 1
        connection = session.connection
        assert connection is not None
        self._detach(session)
        connection.close(Ending.TAKEN_OVER)

    def _detach(self, session: Session) -> None:
        self._node.queues.discard_late(session)
        self._node.audit.record_session("disconnected", session)
        session.last_position = self.position_of(session)
        session.connection = None
        self._node.counters.disconnections += 1
        session.topics.clear()
        for group in self._node.drainer.detach(session):
            self._node.drainer.serve_group(group)  # what it had not acknowledged goes to the others

    def end(self, session: Session) -> None:
        """Forget a session and everything it still wanted. Its filters are removed in background steps."""
        if self._leaving.pop(session, None) is not None:
            self._detach(session)
        if session.subscriptions:
            self._node.tick.settle()
        session.is_over = True
        self._node.queues.end(session)
        self._subscribing.leave_all(session)
        self._deadlines.discard(session)
        if self._node.sessions.get(session.client_id) is session:
            del self._node.sessions[session.client_id]
            self._node.clients.leave(session)
            self._node.recorder.forget(session)
        if session.will is not None:
            self._publish_will(session)

    # Wills

    def _settle_old_will(self, session: Session) -> None:
        """Publish the old will of a resumed session, if it has no delay."""
        if session.will is not None and not session.will.delay:
            self._publish_will(session)

    def _publish_due_will(self, session: Session, now: float) -> None:
        if session.will is not None and session.will_due <= now:
            self._publish_will(session)

    def _publish_will(self, session: Session) -> None:
        will, session.will = session.will, None
        assert will is not None
        self._node.recorder.save(session)
        self.wills.publish(session, will)

    def check_will(self, identity: Identity, will: Will) -> None:
        """Refuse a will that could not be published."""
        check_topic(will.topic, self._node.settings.topic)
        if is_reserved(will.topic) or not self._node.access.may_publish(identity, will.topic):
            raise NotAuthorized(f"not allowed to publish to {will.topic}")

    # Time

    def reap(self, now: float) -> bool:
        """End some sessions, and publish some wills, whose time has come. Returns whether there are more."""
        for _ in range(SESSIONS_A_STEP):
            session = self._deadlines.take(now)
            if session is None:
                return False
            if session.connection is None and self._node.sessions.get(session.client_id) is session:
                self._publish_due_will(session, now)
                if session.expires_at <= now:
                    self._node.counters.sessions_expired += 1
                    self.end(session)
                else:
                    self._set_deadline(session)
        return True

    def _set_deadline(self, session: Session) -> None:
        """Look at an offline session when its will is due, or when it expires."""
        is_late = session.will is not None
        when = min(session.expires_at, session.will_due) if is_late else session.expires_at
        if when < FOREVER:
            self._deadlines.add(session, when)
