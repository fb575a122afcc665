"""GET /api/v1/events: live messages as Server-Sent Events.

Each message has its cursor as id, so that a browser that reconnects sends its position (`Last-Event-ID`)
and gets what it missed first. A message is encoded once for all followers.
"""

from asyncio import Handle, get_running_loop
from collections.abc import Iterator, Sequence
from itertools import islice

from penstock.common.cursor import Cursor
from penstock.common.topics import split_share
from penstock.core.replay.catch_up import After, Last, Start
from penstock.core.sessions.session import Session
from penstock.doors.web.context import Web
from penstock.doors.web.reading.events import EventEncoding, EventTexts
from penstock.doors.web.sse.blocks import message_block, place
from penstock.doors.web.sse.follower import MEDIA_TYPE, EventStream, FollowRequest
from penstock.doors.web.support.negotiation import preferred
from penstock.errors import InvalidFilter, InvalidRequest, NotAcceptable, NotAuthorized, PenstockError
from penstock.net.http.auth import TOKEN
from penstock.net.http.request import Request
from penstock.net.http.routes import Routes

PATH = "/api/v1/events"
ONCE = frozenset({"after", "last", TOKEN.decode()})
"""Parameters that are given once at most."""
MAX_LAST = 10_000
BEAT_S = 15.0
"""Interval of heartbeats."""
BEAT_STREAMS = 500
"""Streams that get their heartbeat in one turn of the loop."""


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
            return self._wish_to_go_on(tuple(filters), last_id)
        return FollowRequest(tuple(filters), _start_of(given))

    def _wish_to_go_on(self, filters: tuple[str, ...], last_id: str) -> FollowRequest:
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
