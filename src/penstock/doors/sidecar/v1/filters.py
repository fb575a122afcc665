"""Filters of a stream: subscribed live or after a replay, and unsubscribed."""

from functools import partial
from typing import TYPE_CHECKING

from penstock.common.cursor import Cursor
from penstock.common.statement import Statement
from penstock.core.replay.catch_up import After, Last, Start
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.subscription import Options
from penstock.doors.sidecar.v1.events import frame_of, refused, statement
from penstock.errors import InvalidRequest, NotAuthorized, PenstockError, QuotaExceeded
from penstock.model import Policy
from penstock.wire.sidecar.messages import penstock as wire

if TYPE_CHECKING:
    from penstock.doors.sidecar.v1.stream import SubscribeStream

OPTIONS = Options()


class Filters:
    """Adds filters to the session of one stream and takes them away."""

    __slots__ = ("_broker", "_forms", "_policy", "_session", "_stream")

    def __init__(self, stream: "SubscribeStream", session: Session, policy: Policy) -> None:
        self._stream = stream
        self._broker = stream.service.broker
        self._forms = stream.service.forms
        self._session = session
        self._policy = policy

    def add(self, request_id: int, add: wire.Add) -> None:
        """Listen to filters. The response leaves before the first message."""
        try:
            self._check_number(len(add.filters))
            start = _start_of(add)
            self._broker.catch_up(
                self._session,
                add.filters,
                OPTIONS,
                self._forms.live,
                policy=self._policy,
                start=start,
                past_encoding=self._forms.past,
                on_begin=partial(self._confirm, request_id, add, self._broker.history.cursor()),
                on_complete=partial(self._on_complete, request_id),
                on_failed=partial(self.refuse, request_id),
            )
            if add.receive_retained:
                self._send_retained(add)
        except PenstockError as error:
            self.refuse(request_id, error)

    def _send_retained(self, add: wire.Add) -> None:
        """Send retained values for filters that are already live, each once."""
        sent_topics: set[str] = set()
        for filter in dict.fromkeys(add.filters):
            self._broker.subscribe(
                self._session,
                filter,
                OPTIONS,
                self._forms.live,
                policy=self._policy,
                retained=True,
                sent_topics=sent_topics,
            )

    def _confirm(self, request_id: int, add: wire.Add, now: Cursor, _: object) -> None:
        has_past = add.WhichOneof("start") is not None
        said = wire.Added(
            request_id=request_id,
            filters=list(dict.fromkeys(add.filters)),
            cursor=add.after or now.encode(),
            replay_started=has_past,
        )
        self._stream.say(frame_of(wire.SubscribeEvent(added=said)))

    def _on_complete(self, request_id: int, complete: Statement) -> None:
        self._stream.say(statement(request_id, complete))

    def remove(self, request_id: int, remove: wire.Remove) -> None:
        """Unsubscribe. After the response no message comes by these filters."""
        try:
            self._check_number(len(remove.filters))
        except PenstockError as error:
            self.refuse(request_id, error)
            return
        broker, session = self._broker, self._session
        known = [each for each in dict.fromkeys(remove.filters) if broker.unsubscribe(session, each)]
        broker.drop_queued(session, known)
        said = wire.Removed(request_id=request_id, filters=known)
        self._stream.say(frame_of(wire.SubscribeEvent(removed=said)))

    def _check_number(self, filters: int) -> None:
        """Check the number of filters before any of them is processed."""
        most = self._broker.settings.sessions.max_subscriptions
        if not filters:
            raise InvalidRequest("name at least one filter")
        if filters > most:
            raise QuotaExceeded(f"{filters} filters, and at most {most} are allowed")

    def refuse(self, request_id: int, error: PenstockError) -> None:
        """Respond with an error."""
        self._broker.counters.actions_forbidden += isinstance(error, NotAuthorized)
        self._stream.note(error)
        self._stream.say(refused(request_id, error))


def _start_of(add: wire.Add) -> Start | None:
    """Return the start of a replay, if there is to be one.

    Raises:
        PenstockError: not a valid cursor, or combined with retained values.
    """
    kind = add.WhichOneof("start")
    if kind is None:
        return None
    if add.receive_retained:
        raise InvalidRequest("retained values are part of the past: ask for one or the other")
    return After(Cursor.decode(add.after)) if kind == "after" else Last(add.last)
