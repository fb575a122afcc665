"""One follower of events: a response that continues at one side, a session of core at the other."""

from asyncio import get_running_loop
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec import Struct

from penstock.common.statement import Statement
from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival
from penstock.core.sessions.session import Ending, Session
from penstock.core.subscriptions.subscription import Options
from penstock.doors.web.sse.blocks import COMMENT, block, opening
from penstock.doors.web.support.schemas import StatementShape, statement_shape
from penstock.errors import (
    BadCredentials,
    Conflict,
    NotAuthorized,
    PenstockError,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
    UnknownTopic,
)
from penstock.model import Door, Policy, Reason
from penstock.net.door import Peer
from penstock.net.http.request import Request
from penstock.net.http.streaming import ResponseStream

if TYPE_CHECKING:
    from penstock.core.replay.catch_up import Start
    from penstock.doors.web.sse.endpoint import Events

MEDIA_TYPE = "text/event-stream"
HEADERS = (
    ("cache-control", "no-store"),
    ("x-accel-buffering", "no"),  # makes proxies pass on events at once
    ("x-content-type-options", "nosniff"),
)
OPTIONS = Options()
ENDINGS: dict[Ending, PenstockError] = {
    Ending.SLOW: QuotaExceeded("slow consumer: too much was queued; reconnect to resume"),
    Ending.UNSTORED: StorageUnavailable("the next messages could not be stored"),
    Ending.UNKNOWN: BadCredentials("your credentials are not valid any more"),
    Ending.ADMINISTRATIVE: Conflict("disconnected by an administrator; reconnect to resume"),
    Ending.TAKEN_OVER: QuotaExceeded("the session was taken over"),
    Ending.SHUTTING_DOWN: ShuttingDown("the server is about to stop"),
}


class FollowRequest(Struct, frozen=True):
    """Request of a follower: filters, and the start."""

    filters: tuple[str, ...]
    start: "Start | None"
    lost: str | None = None
    """Its cursor, if that is of a log that no longer exists."""


class EndShape(Struct):
    """Reason why the server ends a stream. A browser reconnects by itself; others should, if it is
    retryable."""

    code: str
    detail: str
    retryable: bool
    client_id: str
    """Client id for the ledger of undelivered messages."""


class DeletedShape(Struct):
    """A topic that was followed by its name and was deleted."""

    topic: str


class LostPlace(StatementShape):
    """A statement that something is missing; with a reason if that is everything from the last id on."""

    reason: Reason | None = None


class EventStream:
    """Sends what its filters match until one side has had enough."""

    __slots__ = ("_flow", "_is_live", "_is_quiet", "_session", "peer", "service")

    def __init__(self, service: "Events") -> None:
        self.service = service
        self._flow = ResponseStream(None, None)
        self.peer: Peer | None = None
        self._session: Session | None = None
        self._is_live = False  # everything up to now has been written, or waits
        self._is_quiet = True  # no message since the last heartbeat

    def begin(self, request: Request, wish: FollowRequest) -> None:
        """Start following.

        Raises:
            PenstockError: not possible; no response has begun.
        """
        broker, who, self.peer = self.service.broker, request.identity, request.peer
        identity = Identity(who.user, str(uuid4()), who.is_certified)
        arrival = Arrival(identity, Door.WEB, rights=who)
        session, _ = broker.connect(arrival, self, reencode=lambda form: form)
        self._session = session
        broker.resume(session)
        try:
            broker.catch_up(
                session,
                wish.filters,
                OPTIONS,
                self.service.encoding,
                policy=Policy.DISCONNECT,
                start=wish.start,
                on_begin=lambda _: self._open(request, wish),
                on_complete=self._on_complete,
                on_failed=self._on_failed,
            )
        except Exception:
            self._notify_disconnect()
            raise

    def _open(self, request: Request, wish: FollowRequest) -> None:
        """Nothing is wrong with the wish: from here on there is a response."""
        self._flow = flow = request.begin(200, HEADERS, content_type=MEDIA_TYPE)
        if flow.is_over:  # a HEAD request is complete
            self._notify_disconnect()
            return
        flow.on_pause, flow.on_resume, flow.on_disconnect = self._pause, self._resume, self._notify_disconnect
        flow.on_drain = _let_core_end_it
        history = self.service.broker.history
        self._is_live = wish.start is None
        now = history.cursor().encode()
        flow.write(opening(now if self._is_live else None))
        if wish.lost is not None:
            following = now if self._is_live else history.cursor(0).encode()
            flow.write(block("gap", _lost_place(wish.lost, following), following))
        self.service.add(self)

    # Core's sink

    def write(self, data: bytes) -> None:
        """Send messages."""
        self._is_quiet = False
        self._flow.write(data)

    def hold(self, *, is_unacknowledged: bool) -> None:
        """It publishes nothing."""

    def release(self) -> None:
        """It publishes nothing."""

    def close(self, reason: str) -> None:
        """Core ends it."""
        self._end(ENDINGS[Ending(reason)])

    # The past

    def _on_complete(self, statement: Statement) -> None:
        """The replay is complete; further messages are live."""
        self._is_live = True
        shape = statement_shape(statement)
        if not shape.is_complete:
            self._flow.write(block("gap", shape))
        self._flow.write(block("statement", shape, shape.next))

    def _on_failed(self, error: PenstockError) -> None:
        """The replay failed."""
        self._end(error)

    # What else happens

    def beat(self, place: bytes) -> None:
        """Send a heartbeat if nothing was sent since the last one, with the position if up to date."""
        session, was_quiet, self._is_quiet = self._session, self._is_quiet, True
        if session is not None and was_quiet and not self._flow.is_full:
            has_all = self._is_live and session.is_flowing and session.subscriptions
            self._flow.write(place if has_all else COMMENT)

    def on_withdrawn(self, filter: str) -> None:
        """End the stream when the right to a filter is lost: a reconnect is refused."""
        self._end(NotAuthorized(f"not allowed to subscribe to {filter} any more"))

    def on_topic_deleted(self, topic: str) -> None:
        """A followed topic was deleted, and its subscription with it."""
        session = self._session
        self._flow.write(block("deleted", DeletedShape(topic)))
        if session is not None and not session.subscriptions and not session.catch_ups:
            # Nothing is left to follow; a reconnect follows a new topic of that name.
            self._end(UnknownTopic(f"{topic} was deleted"))

    def _pause(self) -> None:
        if self._session is not None:
            self.service.broker.pause(self._session)

    def _resume(self) -> None:
        if self._session is not None:
            self.service.broker.unpause(self._session)

    # Endings

    def _end(self, error: PenstockError) -> None:
        """Say why it ends, as the last thing."""
        session = self._forget()
        if session is None:
            return
        end = EndShape(error.code, str(error), error.retryable, session.client_id)
        self._flow.end(block("end", end))
        get_running_loop().call_soon(self._disconnect, session)  # core may be in the middle of something

    def _notify_disconnect(self) -> None:
        """The client has disconnected, or was never accepted."""
        session = self._forget()
        if session is not None:
            self._disconnect(session)

    def _forget(self) -> Session | None:
        session, self._session = self._session, None
        self.service.discard(self)
        return session

    def _disconnect(self, session: Session) -> None:
        self.service.broker.disconnect(session, self, is_graceful=True)


def _let_core_end_it() -> None:
    """The server stops: core says so when everything that was published has left."""


def _lost_place(after: str, following: str) -> LostPlace:
    return LostPlace(
        after=after,
        next=following,
        served=0,
        is_complete=False,
        is_at_head=False,
        missing=[],
        gaps=[],
        reason=Reason.EPOCH_CHANGED,
    )
