"""One subscriber: a call with a stream of requests and one of events, and a session of core.

Responses have the order of the requests. After the last request events continue, until the client cancels
the call or the server ends it. A client that does not read its events is not read from either.
"""

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from msgspec import Struct
from msgspec.structs import replace

from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival
from penstock.core.sessions.session import Ending, Session
from penstock.doors.sidecar.nexusd.loss_warnings import reason_of
from penstock.doors.sidecar.transport.method import Call, EndCause, Handler
from penstock.doors.sidecar.transport.status import undecodable
from penstock.doors.sidecar.v1.events import frame_of, heartbeat, opened, warning
from penstock.doors.sidecar.v1.filters import Filters
from penstock.errors import (
    BadCredentials,
    Conflict,
    InvalidRequest,
    PenstockError,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
    UnknownClient,
)
from penstock.model import Door, Policy
from penstock.net.door import Peer
from penstock.wire.sidecar.messages import penstock as wire

if TYPE_CHECKING:
    from penstock.doors.sidecar.v1.service import PenstockService

WARNING_S = 1.0
"""Least time between two warnings."""
POLICIES = {
    wire.POLICY_DROP_OLDEST: Policy.DROP_OLDEST,
    wire.POLICY_DROP_NEWEST: Policy.DROP_NEWEST,
    wire.POLICY_BLOCK: Policy.BLOCK,
    wire.POLICY_DISCONNECT: Policy.DISCONNECT,
}
ENDINGS: dict[Ending, PenstockError] = {
    Ending.SLOW: QuotaExceeded("slow consumer: too much was queued; reconnect to resume"),
    Ending.UNSTORED: StorageUnavailable("the next messages could not be stored"),
    Ending.UNKNOWN: BadCredentials("your credentials are not valid any more"),
    Ending.ADMINISTRATIVE: Conflict("disconnected by an administrator; reconnect to resume"),
    Ending.SESSION_ENDED: UnknownClient("an administrator has ended this session"),
    Ending.TAKEN_OVER: QuotaExceeded("the session was taken over"),
    Ending.SHUTTING_DOWN: ShuttingDown("the server is about to stop"),
}


class Subscriber(Struct):
    """A client that has opened its stream."""

    session: Session
    filters: Filters


class SubscribeStream(Handler):
    """One call on one side, a session of core on the other."""

    __slots__ = ("_call", "_is_full", "_said_at", "_subscriber", "_warned_at", "service")

    def __init__(self, service: "PenstockService", call: Call) -> None:
        self.service = service
        self._call = call
        self._subscriber: Subscriber | None = None  # which refers back here, until it has left
        self._is_full = False
        self._said_at = 0.0
        self._warned_at = 0.0

    @property
    def peer(self) -> Peer:
        """Address of the client."""
        return self._call.peer

    # The call

    def message_received(self, message: bytes) -> None:
        """Carry out a request."""
        if self._call.is_over:
            return
        try:
            request = wire.SubscribeRequest.FromString(message)
        except DecodeError:
            self._end(undecodable("SubscribeRequest"))
            return
        action = request.WhichOneof("action")
        if self._subscriber is None:
            self._open(request.open)
            if action == "open":
                return
        if self._subscriber is not None:
            self._carry_out(self._subscriber, action, request)

    def messages_ended(self) -> None:
        """Start events, also without any request."""
        if self._subscriber is None and not self._call.is_over:
            self._open(wire.Open())

    def pause_writing(self) -> None:
        """The client does not read what it gets."""
        self._is_full = True
        self._call.pause_reading()
        if self._subscriber is not None:
            self.service.broker.pause(self._subscriber.session)

    def resume_writing(self) -> None:
        """It does; what it has lost meanwhile it learns first."""
        self._is_full = False
        self.warn_if_due()
        if self._subscriber is not None:
            self.service.broker.unpause(self._subscriber.session)
        if not self._is_full:  # last: the next request may bring about more than the client takes
            self._call.resume_reading()

    def ended(self, cause: EndCause) -> None:
        """The client has disconnected."""
        subscriber = self._let_go()
        if subscriber is not None:
            self.service.broker.disconnect(subscriber.session, self, is_graceful=True)

    # Requests

    def _open(self, wish: wire.Open) -> None:
        broker, identity = self.service.broker, self._call.identity
        assert identity is not None
        try:
            policy = self._policy_of(wish)
            session_id = self.service.name_session(wish.client_id)
            arrival = Arrival(
                Identity(identity.user, session_id, identity.is_certified),
                Door.SIDECAR,
                rights=replace(identity, client_id=wish.client_id) if wish.client_id else identity,
                outbox_messages=wish.max_buffer_size or None,
                credit=wish.credit or None,
            )
            session, _ = broker.connect(arrival, self, reencode=lambda form: form)
        except PenstockError as error:
            self._end(error)
            return
        self._subscriber = Subscriber(session, Filters(self, session, policy))
        self.service.add(self)
        self.say(opened(session_id, broker.node_id, broker.history.cursor().encode()))
        broker.resume(session)

    def _policy_of(self, wish: wire.Open) -> Policy:
        if wish.policy == wire.POLICY_UNSPECIFIED:
            return self.service.settings.policy
        if wish.policy not in POLICIES:
            raise InvalidRequest(f"there is no policy {wish.policy}")
        return POLICIES[wish.policy]

    def _carry_out(self, subscriber: Subscriber, action: str | None, request: wire.SubscribeRequest) -> None:
        filters, request_id = subscriber.filters, request.request_id
        if action == "add":
            filters.add(request_id, request.add)
        elif action == "remove":
            filters.remove(request_id, request.remove)
        elif action == "credit":
            self.service.broker.grant(subscriber.session, request.credit.messages)
        elif action == "open":
            filters.refuse(request_id, InvalidRequest("a stream is opened once, by its first request"))
        else:
            filters.refuse(request_id, InvalidRequest("the request has no action that is known here"))

    # Connection port of core

    def write(self, data: bytes) -> None:
        """Send messages."""
        self.say(data)

    def block(self, *, is_unacknowledged: bool, withholds_acks: bool = True) -> None:
        """It publishes nothing."""

    def unblock(self) -> None:
        """It publishes nothing."""

    def close(self, reason: str) -> None:
        """Core ends it."""
        self._finish(ENDINGS[Ending(reason)])

    # What else is said

    def say(self, events: bytes) -> None:
        """Send events, framed and joined."""
        self._said_at = self.service.clock.monotonic()
        self._call.send(events)

    def note(self, error: PenstockError) -> None:
        """Refuse a request."""
        self.service.note(self._call, error)

    def warn_if_due(self) -> None:
        """Warn the client of messages lost since the last warning, unless that was too recent."""
        subscriber = self._subscriber
        if subscriber is None or subscriber.session.losses is None or self._is_full:
            return
        now = self.service.clock.monotonic()
        if now < self._warned_at + WARNING_S:
            return
        report = self.service.broker.take_loss_report(subscriber.session)
        if report is not None:
            self._warned_at = now
            self.say(warning(report, reason_of(report, self.service.broker.settings.slow.after_ms)))

    def check_deadline(self, now: float) -> float | None:
        """Send a heartbeat to a client without events for a while."""
        subscriber, heartbeat_s = self._subscriber, self.service.settings.heartbeat_s
        if subscriber is None or not heartbeat_s:
            return None
        if now >= self._said_at + heartbeat_s and not self._is_full:
            self.service.broker.deliver_now()  # so that everything up to now is written, or waits
            self.say(heartbeat(self.service.clock.wall_us(), self._place_of(subscriber.session)))
        return max(self._said_at, now if self._is_full else 0.0) + heartbeat_s

    def _place_of(self, session: Session) -> str:
        """Up to where a session has everything that it wants; nothing if it does not have it yet."""
        has_all = session.keeps_up and session.catch_ups is None and session.subscriptions
        return self.service.broker.history.cursor().encode() if has_all else ""

    def on_withdrawn(self, filters: list[str], code: str) -> None:
        """Filters were taken away from it."""
        said = wire.Withdrawn(filters=filters, code=code)
        self.say(frame_of(wire.SubscribeEvent(withdrawn=said)))

    # Endings

    def _end(self, error: PenstockError) -> None:
        """End the stream for an error that this side has found."""
        subscriber = self._finish(error)
        if subscriber is not None:
            self.service.broker.disconnect_soon(subscriber.session, self)

    def _finish(self, error: PenstockError) -> Subscriber | None:
        """Say why it ends, as the last thing. Returns the subscriber, once."""
        self.warn_if_due()
        subscriber = self._let_go()
        self.service.refuse(self._call, error)
        return subscriber

    def _let_go(self) -> Subscriber | None:
        """Detach the session, and return it, once."""
        subscriber, self._subscriber = self._subscriber, None
        self.service.discard(self)
        return subscriber
