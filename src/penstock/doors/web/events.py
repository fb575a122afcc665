"""GET /api/v1/events: messages as they are published, as Server-Sent Events.

Each message has its cursor as its id, so that a browser that lost its connection comes back with the place
where it was (`Last-Event-ID`) and gets what it missed first. A message is encoded once for all who follow.
"""

from asyncio import Handle, get_running_loop
from collections.abc import Iterator, Sequence
from itertools import islice

from penstock.core.cursor import Cursor
from penstock.core.joining import After, Last, Start
from penstock.core.sessions import Session
from penstock.core.topics import split_share
from penstock.doors.http.credentials import TOKEN
from penstock.doors.http.requests import Request
from penstock.doors.http.routes import Routes
from penstock.doors.web.context import Web
from penstock.doors.web.event_form import EventForm
from penstock.doors.web.event_frames import message_block, place
from penstock.doors.web.event_stream import MEDIA_TYPE, EventStream, Wish
from penstock.doors.web.event_text import EventTexts
from penstock.doors.web.media import preferred
from penstock.errors import InvalidFilter, InvalidRequest, NotAcceptable, NotAuthorized, PenstockError

PATH = "/api/v1/events"
ONCE = frozenset({"after", "last", TOKEN.decode()})
"""Parameters that are given once at most."""
MAX_LAST = 10_000
BEAT_S = 15.0
"""How often somebody to whom nothing is sent learns that the server is there."""
BEAT_STREAMS = 500
"""How many of them are told in one turn of the loop, before others have theirs."""


class Events:
    """Everybody who follows events, and what they share."""

    def __init__(self, web: Web) -> None:
        self.broker = web.broker
        self.form = EventForm(EventTexts(web.broker.log), message_block)
        self._streams: dict[EventStream, None] = {}
        self._timer: Handle | None = None
        self.broker.on_topic_deleted.append(self._on_topic_deleted)
        self.broker.on_rights_withdrawn.append(self._on_rights_withdrawn)

    def take(self, request: Request) -> None:
        """Answer a request with the messages that it wants to follow.

        Raises:
            PenstockError: it wants something that cannot be.
        """
        if preferred(request.header(b"accept"), (MEDIA_TYPE,)) is None:
            raise NotAcceptable(f"there is {MEDIA_TYPE} here")
        wish = self._read(request)
        try:
            EventStream(self).begin(request, wish)
        except PenstockError as error:
            self.broker.counters.actions_forbidden += isinstance(error, NotAuthorized)
            raise

    # What was asked for

    def _read(self, request: Request) -> Wish:
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
        if last_id:  # it comes back: what the query says was for the first time
            return self._wish_to_go_on(tuple(filters), last_id)
        return Wish(tuple(filters), _start_of(given))

    def _wish_to_go_on(self, filters: tuple[str, ...], last_id: str) -> Wish:
        """Go on behind the last id. A browser gives up for good if that is refused, so it never is for a log
        that is gone: one in memory is newer than anything the client has seen, and is sent from its start.
        """
        log, history = self.broker.log, self.broker.history
        cursor = Cursor.decode(last_id)
        if cursor.position_in(log.log_id) is not None:
            return Wish(filters, After(cursor))
        return Wish(filters, None if log.is_durable else After(history.cursor(0)), lost=last_id)

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
        """Show everybody that the server is there, and those who are up to date how far that is."""
        self._beat_some(iter(list(self._streams)))

    def _beat_some(self, streams: Iterator[EventStream]) -> None:
        self.broker.tick.settle()  # so that everything up to now is written, or waits
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
            stream = session.sink
            if isinstance(stream, EventStream) and stream.service is self:
                stream.on_topic_deleted(topic)

    def _on_rights_withdrawn(self, session: Session, filters: Sequence[str]) -> None:
        stream = session.sink
        if isinstance(stream, EventStream) and stream.service is self:
            stream.on_withdrawn(filters[0])


def _checked(filter: str) -> str:
    if split_share(filter)[0] is not None:
        raise InvalidFilter(
            "who shares a filter with others has no place to go on from: share it at /ws or by MQTT"
        )
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
    """Let the listener answer by itself."""
    table.add("GET", PATH, Events(web).take, max_body_bytes=0, is_stream=True, waits_its_turn=True)
