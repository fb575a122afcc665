"""One follower of events: an answer that goes on at one side, a session of core at the other."""

from asyncio import get_running_loop
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec import Struct

from penstock.core.broker import Arrival
from penstock.core.identity import Identity
from penstock.core.sessions import Ending, Options, Session
from penstock.core.statement import Statement
from penstock.doors.base import Peer
from penstock.doors.http.outflow import Outflow
from penstock.doors.http.requests import Request
from penstock.doors.web.event_frames import COMMENT, block, opening
from penstock.doors.web.shapes import StatementShape, statement_shape
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

if TYPE_CHECKING:
    from penstock.core.joining import Start
    from penstock.doors.web.events import Events

MEDIA_TYPE = "text/event-stream"
HEADERS = (
    ("cache-control", "no-store"),
    ("x-accel-buffering", "no"),  # asks proxies to pass on what comes at once
    ("x-content-type-options", "nosniff"),
)
OPTIONS = Options()
ENDINGS: dict[Ending, PenstockError] = {
    Ending.SLOW: QuotaExceeded("too much waited for you; come back to go on from where you are"),
    Ending.UNSTORED: StorageUnavailable("what you were about to get could not be stored"),
    Ending.UNKNOWN: BadCredentials("you are not known any more"),
    Ending.ADMINISTRATIVE: Conflict(
        "an administrator has ended this connection; come back to go on from where you are"
    ),
    Ending.TAKEN_OVER: QuotaExceeded("somebody else goes on in your place"),
    Ending.SHUTTING_DOWN: ShuttingDown("the server is about to stop"),
}


class Wish(Struct, frozen=True):
    """What somebody wants to follow, and from where on."""

    filters: tuple[str, ...]
    start: "Start | None"
    lost: str | None = None
    """The cursor that it came with, if the log of that is gone."""


class EndShape(Struct):
    """Why the server ends a stream. A browser comes back by itself; others should, if it is retryable."""

    code: str
    detail: str
    retryable: bool
    client_id: str
    """By which the ledger knows who did not get something."""


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
        self._flow = Outflow(None, None)
        self.peer: Peer | None = None
        self._session: Session | None = None
        self._is_live = False  # everything up to now has been written, or waits
        self._is_quiet = True  # no message has come since the last beat

    def begin(self, request: Request, wish: Wish) -> None:
        """Follow, from where the wish says.

        Raises:
            PenstockError: that cannot be; nothing has been answered.
        """
        broker, who, self.peer = self.service.broker, request.identity, request.peer
        identity = Identity(who.user, str(uuid4()), who.is_certified)
        session, _ = broker.connect(Arrival(identity, Door.WEB), self, reform=lambda form: form)
        session.identity = who  # nobody has its client id; its rights are those of any request of the caller
        self._session = session
        broker.resume(session)
        try:
            broker.join(
                session,
                wish.filters,
                OPTIONS,
                self.service.form,
                policy=Policy.DISCONNECT,
                start=wish.start,
                on_begin=lambda _: self._open(request, wish),
                on_complete=self._on_complete,
                on_failed=self._on_failed,
            )
        except Exception:
            self._leave()
            raise

    def _open(self, request: Request, wish: Wish) -> None:
        """Nothing is wrong with the wish: from here on there is an answer."""
        self._flow = flow = request.begin(200, HEADERS, content_type=MEDIA_TYPE)
        if flow.is_over:  # who asked for the head alone has it
            self._leave()
            return
        flow.on_pause, flow.on_resume, flow.on_gone = self._pause, self._resume, self._leave
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
        """All of the past has been sent, and what comes now is live."""
        self._is_live = True
        shape = statement_shape(statement)
        if not shape.is_complete:
            self._flow.write(block("gap", shape))
        self._flow.write(block("statement", shape, shape.next))

    def _on_failed(self, error: PenstockError) -> None:
        """The past cannot be told to its end."""
        self._end(error)

    # What else happens

    def beat(self, place: bytes) -> None:
        """Show who got nothing since the last beat that somebody is here, and where it is if up to date."""
        session, was_quiet, self._is_quiet = self._session, self._is_quiet, True
        if session is not None and was_quiet and not self._flow.is_full:
            has_all = self._is_live and session.is_flowing and session.subscriptions
            self._flow.write(place if has_all else COMMENT)

    def on_withdrawn(self, filter: str) -> None:
        """A filter may not be followed any more: who comes back is refused, as for every filter of these."""
        self._end(NotAuthorized(f"not allowed to subscribe to {filter} any more"))

    def on_topic_deleted(self, topic: str) -> None:
        """A topic that it followed by its name is gone, and so is that subscription."""
        session = self._session
        self._flow.write(block("deleted", DeletedShape(topic)))
        if session is not None and not session.subscriptions and not session.joins:
            # There is nothing left to follow; who comes back follows what will have that name then.
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

    def _leave(self) -> None:
        """The client has gone, or was never let in."""
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
