"""Subscribe and Unsubscribe: live messages of topics, after retained values on request.

Unsubscribe ends a stream for good, or pauses it until it is resumed.
"""

from collections.abc import Iterable
from functools import partial
from secrets import token_hex

from penstock.common.topics import is_wildcard, split_share
from penstock.core.durability.records import PausedRecord
from penstock.core.subscriptions.subscription import Options
from penstock.doors.sidecar.nexusd.client_progress import newest_of
from penstock.doors.sidecar.nexusd.context import Sidecar
from penstock.doors.sidecar.nexusd.stream import Certainty, Stream
from penstock.doors.sidecar.transport.method import Call
from penstock.doors.sidecar.transport.status import error_of
from penstock.errors import InvalidFilter, InvalidRequest
from penstock.wire.sidecar.messages.nexusd import (
    SubscribeRequest,
    SubscriptionInfo,
    UnsubscribeRequest,
    UnsubscribeResponse,
)

OPTIONS = Options()
SHOWN_CHARACTERS = 64
"""Characters of the client's own name in the id of its subscription."""
LOG_CHARACTERS = 8
RANDOM_BYTES = 6
NOT_FOUND = UnsubscribeResponse(success=False, error_message="Subscription not found")


class SubscribeMethod:
    """Begins subscriptions."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar

    def subscribe(self, call: Call, request: SubscribeRequest) -> None:
        """Begin a stream. With a durable log it can be resumed once it is confirmed, also after a crash.

        Raises:
            PenstockError: the request is not valid.
        """
        sidecar, broker = self._sidecar, self._sidecar.broker
        record = self._record_of(call, request)
        stream = Stream(sidecar, call, self._new_id(record.client_id), record)
        stream.open()
        try:
            go_live(sidecar, stream, retained=record.receive_retained)
        except Exception:
            stream.abandon()
            raise
        info = SubscriptionInfo(
            subscription_id=stream.id, topics=record.filters, timestamp_ms=sidecar.now_ms()
        )
        broker.paused.begin(stream.id, record)
        broker.paused.when_stored(partial(self._announce, stream, info))

    def _announce(self, stream: Stream, info: SubscriptionInfo, failure: Exception | None) -> None:
        if stream.session is None:
            return  # its client has disconnected meanwhile
        if failure is None:
            stream.announce(info)
            stream.flow()
        else:
            stream.forget(error_of(failure))

    def _record_of(self, call: Call, request: SubscribeRequest) -> PausedRecord:
        assert call.identity is not None
        if request.max_buffer_size < 0:
            raise InvalidRequest("max_buffer_size is not negative")
        broker = self._sidecar.broker
        filters = filters_of(request.topics, wildcards=self._sidecar.settings.wildcards)
        return PausedRecord(
            user=call.identity.user,
            client_id=request.client_id,
            filters=filters,
            ttl=self._sidecar.settings.paused_ttl_ms / 1_000,
            position=broker.history.head,
            since=broker.history.head,
            epoch=broker.log.epoch,
            receive_retained=request.receive_retained,
            max_buffer=request.max_buffer_size,
            sequences=newest_of(broker, filters),
        )

    def _new_id(self, client_id: str) -> str:
        log = self._sidecar.broker.log
        shown = "".join(each if each.isprintable() else "_" for each in client_id[:SHOWN_CHARACTERS])
        start = f"sub-{log.log_id[:LOG_CHARACTERS]}-{log.epoch}"
        return f"{start}-{shown or 'anonymous'}-{token_hex(RANDOM_BYTES)}"


def go_live(sidecar: Sidecar, stream: Stream, *, retained: bool) -> None:
    """Subscribe a stream to its filters; those that it has stay as they are.

    Raises:
        PenstockError: one of them is invalid, forbidden or one too many.
    """
    assert stream.session is not None
    sent_topics: set[str] = set()
    for filter in stream.record.filters:
        sidecar.broker.subscribe(
            stream.session,
            filter,
            OPTIONS,
            sidecar.forms.live,
            policy=sidecar.settings.policy,
            retained=retained,
            sent_topics=sent_topics,
        )


def filters_of(topics: Iterable[str], *, wildcards: bool) -> tuple[str, ...]:
    """Return the topics of a request, without duplicates.

    Raises:
        PenstockError: none, or wildcards where they are not allowed.
    """
    filters = tuple(dict.fromkeys(topics))
    if not filters:
        raise InvalidRequest("name at least one topic")
    for filter in filters:
        if not wildcards and is_wildcard(split_share(filter)[1]):
            raise InvalidFilter(f"{filter} has a wildcard, which sidecar.wildcards does not allow")
    return filters


class UnsubscribeMethod:
    """Ends subscriptions, also those without an open stream."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar

    def unsubscribe(self, call: Call, request: UnsubscribeRequest) -> None:
        """End a subscription of the caller; those of others count as unknown."""
        assert call.identity is not None
        id, user, is_found = request.subscription_id, call.identity.user, True
        stream = self._sidecar.streams.get(id)
        if stream is not None and stream.record.user == user:
            if request.pause:
                stream.pause(Certainty.RECEIVED)
            else:
                stream.forget()
        elif self._sidecar.broker.paused.find(id, user) is None:
            is_found = False
        elif not request.pause:
            self._sidecar.broker.paused.forget(id)
        response = self._found(request) if is_found else NOT_FOUND
        call.respond(response.SerializeToString())

    def _found(self, request: UnsubscribeRequest) -> UnsubscribeResponse:
        ttl_ms = self._sidecar.settings.paused_ttl_ms if request.pause else 0
        return UnsubscribeResponse(success=True, pause_ttl_ms=ttl_ms)
