"""Server-Sent Events: GET /api/v1/events, live messages as `text/event-stream`.

Each message has its cursor as id, so that a browser that reconnects sends its position (`Last-Event-ID`)
and gets what it missed first. A message is encoded once for all followers. A block with nothing but an id
moves the position on without an event.
"""

from asyncio import Handle, get_running_loop
from collections.abc import Iterator, Sequence
from itertools import islice
from uuid import uuid4

from msgspec import Struct, json

from penstock.common.cursor import Cursor
from penstock.common.statement import Statement
from penstock.common.topics import split_share
from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival
from penstock.core.replay.catch_up import After, Last, Start
from penstock.core.sessions.session import Ending, Session
from penstock.core.subscriptions.subscription import Options
from penstock.doors.web.context import Web
from penstock.doors.web.reading.events import EventEncoding, EventTexts
from penstock.doors.web.support.schemas import StatementShape, statement_shape
from penstock.errors import (
    BadCredentials,
    Conflict,
    InvalidFilter,
    InvalidRequest,
    NotAcceptable,
    NotAuthorized,
    PenstockError,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
    UnknownClient,
    UnknownTopic,
)
from penstock.model import Door, Policy, Reason
from penstock.net.door import Peer
from penstock.net.http.auth import TOKEN
from penstock.net.http.request import Request
from penstock.net.http.response import preferred
from penstock.net.http.routes import Routes
from penstock.net.http.streaming import ResponseStream

RETRY_MS = 1_000
"""Time that a browser waits before it reconnects."""
COMMENT = b":\n\n"
"""Heartbeat."""
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
    Ending.SESSION_ENDED: UnknownClient("an administrator has ended this session"),
    Ending.TAKEN_OVER: QuotaExceeded("the session was taken over"),
    Ending.SHUTTING_DOWN: ShuttingDown("the server is about to stop"),
}
PATH = "/api/v1/events"
ONCE = frozenset({"after", "last", TOKEN.decode()})
"""Parameters that are given once at most."""
MAX_LAST = 10_000
BEAT_S = 15.0
"""Interval of heartbeats."""
BEAT_STREAMS = 500
"""Streams that get their heartbeat in one turn of the loop."""


def message_block(text: bytes) -> bytes:
    """A message, as the text of its event says it."""
    return b"id: %b\ndata: %b\n\n" % (_cursor_in(text), text)


def block(name: str, data: Struct, cursor: str | None = None) -> bytes:
    """Encode an event of the server, with its position if it has one."""
    id_line = b"" if cursor is None else b"id: %b\n" % cursor.encode()
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), id_line, json.encode(data))


def opening(cursor: str | None) -> bytes:
    """Beginning of every response: retry time, and the initial position."""
    return b"retry: %d\n" % RETRY_MS + (b"\n" if cursor is None else place(cursor))


def place(cursor: str) -> bytes:
    """Encode the position of a client that is up to date."""
    return b"id: %b\n\n" % cursor.encode()


def _cursor_in(text: bytes) -> bytes:
    """The cursor of an event, which is the last that it says."""
    return text[text.rindex(b'"', 0, -2) + 1 : -2]


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

    # Connection port of core

    def write(self, data: bytes) -> None:
        """Send messages."""
        self._is_quiet = False
        self._flow.write(data)

    def block(self, *, is_unacknowledged: bool, withholds_acks: bool = True) -> None:
        """It publishes nothing."""

    def unblock(self) -> None:
        """It publishes nothing."""

    def close(self, reason: str) -> None:
        """Core ends it."""
        self._finish(ENDINGS[Ending(reason)])

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
        """End the stream for an error that this side has found."""
        session = self._finish(error)
        if session is not None:
            self.service.broker.disconnect_soon(session, self)

    def _finish(self, error: PenstockError) -> Session | None:
        """Say why it ends, as the last thing. Returns the session, once."""
        session = self._forget()
        if session is not None:
            end = EndShape(error.code, str(error), error.retryable, session.client_id)
            self._flow.end(block("end", end))
        return session

    def _notify_disconnect(self) -> None:
        """The client has disconnected, or was never accepted."""
        session = self._forget()
        if session is not None:
            self.service.broker.disconnect(session, self, is_graceful=True)

    def _forget(self) -> Session | None:
        session, self._session = self._session, None
        self.service.discard(self)
        return session


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


class Events:
    """All event streams, and what they share."""

    def __init__(self, web: Web) -> None:
        self.broker = web.broker
        self.encoding = EventEncoding(EventTexts(web.broker.log), message_block)
        self._streams: dict[EventStream, None] = {}
        self._timer: Handle | None = None
        self.broker.notify_topic_deleted(self._on_topic_deleted)
        self.broker.notify_withdrawn(self._on_rights_withdrawn)

    def take(self, request: Request) -> None:
        """Start the event stream of a request.

        Raises:
            PenstockError: the request is not valid.
        """
        if preferred(request.header(b"accept"), (MEDIA_TYPE,)) is None:
            raise NotAcceptable(f"there is {MEDIA_TYPE} here")
        wish = self._read(request)
        try:
            EventStream(self).begin(request, wish)
        except PenstockError as error:
            self.broker.counters.actions_forbidden += isinstance(error, NotAuthorized)
            raise

    # Requests

    def _read(self, request: Request) -> FollowRequest:
        filters: dict[str, None] = {}
        given: dict[str, str] = {}
        for name, value in request.pairs():
            if name == "filter":
                filters[_checked(value)] = None
            elif name not in ONCE:
                raise InvalidRequest(f"there is no parameter {name!r} here")
            elif name in given:
                raise InvalidRequest(f"the query has {name!r} twice")
            else:
                given[name] = value
        if not filters:
            raise InvalidRequest("give at least one filter: ?filter=plant/%23")
        if "after" in given and "last" in given:
            raise InvalidRequest("give one of after and last")
        last_id = request.header(b"last-event-id")
        if last_id:  # a reconnect: the query was for the first request
            return self._resume_request(tuple(filters), last_id)
        return FollowRequest(tuple(filters), _start_of(given))

    def _resume_request(self, filters: tuple[str, ...], last_id: str) -> FollowRequest:
        """Resume after the last id. A browser gives up for good after a refusal, so an unknown log is
        never refused: a log in memory is newer than anything the client has seen, and is sent from its
        start.
        """
        log, history = self.broker.log, self.broker.history
        cursor = Cursor.decode(last_id)
        if cursor.position_in(log.log_id) is not None:
            return FollowRequest(filters, After(cursor))
        return FollowRequest(filters, None if log.is_durable else After(history.cursor(0)), lost=last_id)

    # All of them

    def add(self, stream: EventStream) -> None:
        """One more follows."""
        self._streams[stream] = None
        if self._timer is None:
            self._timer = get_running_loop().call_later(BEAT_S, self.beat)

    def discard(self, stream: EventStream) -> None:
        """One less."""
        self._streams.pop(stream, None)
        if not self._streams and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def beat(self) -> None:
        """Send heartbeats, with the position to streams that are up to date."""
        self._beat_some(iter(list(self._streams)))

    def _beat_some(self, streams: Iterator[EventStream]) -> None:
        self.broker.deliver_now()  # so that everything up to now is written, or waits
        now, loop = place(self.broker.history.cursor().encode()), get_running_loop()
        some = list(islice(streams, BEAT_STREAMS))
        for stream in some:
            stream.beat(now)
        if not self._streams:
            self._timer = None
        elif len(some) == BEAT_STREAMS:
            self._timer = loop.call_soon(self._beat_some, streams)
        else:
            self._timer = loop.call_later(BEAT_S, self.beat)

    def _on_topic_deleted(self, topic: str, sessions: Sequence[Session]) -> None:
        for session in sessions:
            stream = session.connection
            if isinstance(stream, EventStream) and stream.service is self:
                stream.on_topic_deleted(topic)

    def _on_rights_withdrawn(self, session: Session, filters: Sequence[str]) -> None:
        stream = session.connection
        if isinstance(stream, EventStream) and stream.service is self:
            stream.on_withdrawn(filters[0])


def _checked(filter: str) -> str:
    if split_share(filter)[0] is not None:
        raise InvalidFilter("shared filters have no position to resume from: use them at /ws or by MQTT")
    return filter


def _start_of(given: dict[str, str]) -> Start | None:
    if "after" in given:
        return After(Cursor.decode(given["after"]))
    if "last" not in given:
        return None
    text = given["last"]
    count = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_LAST)) else -1
    if not 0 <= count <= MAX_LAST:
        raise InvalidRequest(f"last is a number from 0 to {MAX_LAST}")
    return Last(count) if count else None


def add_hot_routes(table: Routes, web: Web) -> None:
    """Add the hot route."""
    table.add("GET", PATH, Events(web).take, max_body_bytes=0, is_stream=True, waits_its_turn=True)
