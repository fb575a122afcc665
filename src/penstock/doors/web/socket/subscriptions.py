"""Subscriptions of one client: live at once, or after a replay."""

from functools import partial
from typing import TYPE_CHECKING

from penstock.common.cursor import Cursor
from penstock.common.statement import Statement
from penstock.common.topics import check_topic, is_wildcard, split_share
from penstock.core.replay.catch_up import After, Last, Start
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.subscription import Options
from penstock.doors.web.socket.replies import Ack, Error, Info, Reply, not_found, subscribe_refusal_of
from penstock.doors.web.socket.requests import Subscribe, Unsubscribe
from penstock.doors.web.support.schemas import statement_shape
from penstock.errors import InvalidTopic, NotAuthorized, PenstockError
from penstock.model import Policy

if TYPE_CHECKING:
    from penstock.doors.web.reading.events import EventEncoding
    from penstock.doors.web.socket.connection import SocketConnection

OPTIONS = Options()
FILTER_HINT = "this looks like a filter: subscribe with 'filter' in place of 'topic'"


class Subscriptions:
    """Adds filters to the session of one connection and takes them away."""

    __slots__ = ("_broker", "_connection", "_form", "_session")

    def __init__(self, connection: "SocketConnection", session: Session, form: "EventEncoding") -> None:
        self._connection = connection
        self._broker = connection.door.broker
        self._session = session
        self._form = form

    def subscribe(self, request: Subscribe) -> None:
        """Add a filter, or replace it. The response leaves before the first event."""
        now = self._broker.history.cursor()
        try:
            if not request.is_filter:
                self._check_topic(request.name)
            self._broker.catch_up(
                self._session,
                request.name,
                OPTIONS,
                self._form,
                policy=Policy.DISCONNECT,
                start=_start_of(request),
                on_begin=lambda _: self._confirm(request, now),
                on_complete=partial(self._on_complete, request),
                on_failed=partial(self._refuse, request),
            )
        except PenstockError as error:
            self._refuse(request, error)

    def _check_topic(self, topic: str) -> None:
        """Check a topic; where topics have to be created first, also that it exists."""
        broker, is_explicit = self._broker, self._connection.door.settings.explicit_topics
        try:
            check_topic(topic, broker.settings.topic)
            is_topic = split_share(topic)[0] is None
        except InvalidTopic:
            is_topic = False
        if not is_topic:
            raise not_found(topic) if is_explicit else InvalidTopic(f"{topic} is no topic")
        if not is_explicit:
            return
        if not broker.access.may_subscribe(self._session.identity, topic):
            raise NotAuthorized(f"not allowed to subscribe to {topic}")  # nor to learn what there is
        if not broker.has_topic(topic):
            raise not_found(topic)

    def _confirm(self, request: Subscribe, now: Cursor) -> None:
        text = f"Subscribed to {_filter_text(request)}"
        ack = Ack("subscribe", request.name, text, request_id=request.request_id)
        ack.filter = request.name if request.is_filter else None
        ack.cursor = request.after or now.encode()
        self._connection.reply(ack)

    def _refuse(self, request: Subscribe, error: PenstockError) -> None:
        self._connection.door.on_subscription_refused(self._connection, request.name, error)
        self._connection.reply(subscribe_refusal_of(error, request.request_id, **_about(request)))

    def _on_complete(self, request: Subscribe, statement: Statement) -> None:
        details = {_key_of(request): request.name, "statement": statement_shape(statement)}
        self._connection.reply(Info("replay_complete", details))

    def unsubscribe(self, request: Unsubscribe) -> None:
        """Unsubscribe from a filter, live or not yet. After the response no event comes by it."""
        is_known = self._broker.unsubscribe(self._session, request.name)
        self._broker.drop_queued(self._session, request.name)
        self._connection.reply(_unsubscribed(request, is_known=is_known))


def _unsubscribed(request: Unsubscribe, *, is_known: bool) -> Reply:
    filter_text, request_id = _filter_text(request), request.request_id
    if not is_known:
        return Error("NOT_SUBSCRIBED", f"Not subscribed to {filter_text}", None, request_id)
    ack = Ack("unsubscribe", request.name, f"Unsubscribed from {filter_text}", request_id=request_id)
    ack.filter = request.name if request.is_filter else None
    return ack


def _start_of(request: Subscribe) -> Start | None:
    """Return the start of a replay, if there is to be one.

    Raises:
        InvalidCursor: not a valid cursor.
    """
    if request.after is not None:
        return After(Cursor.decode(request.after))
    return Last(int(request.last_n)) if request.last_n else None


def _about(request: Subscribe) -> dict[str, str]:
    """Details of a refusal beside the code."""
    name = request.name
    looks_like_filter = is_wildcard(name) or split_share(name)[0] is not None
    hint = {"hint": FILTER_HINT} if looks_like_filter and not request.is_filter else {}
    return {_key_of(request): name} | hint


def _key_of(request: Subscribe) -> str:
    return "filter" if request.is_filter else "topic"


def _filter_text(request: Subscribe | Unsubscribe) -> str:
    """Describe the request in words."""
    return f"filter '{request.name}'" if request.is_filter else f"topic '{request.name}'"
