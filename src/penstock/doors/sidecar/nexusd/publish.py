"""Publish: one message; the response comes after its commit, with the number of subscribers.

A publisher that is blocked under `block` waits before it publishes more, and before its response. Others
do not.
"""

from functools import partial
from typing import Final

from penstock.common.topics import TopicLimits
from penstock.core.broker import Receipt
from penstock.core.publishing.outcome import Outcome
from penstock.core.publishing.properties import MAX_TTL_MS, check_properties
from penstock.core.sessions.session import Session
from penstock.doors.sidecar.nexusd.context import Sidecar
from penstock.doors.sidecar.transport.method import Call
from penstock.doors.sidecar.transport.status import error_of
from penstock.errors import InvalidRequest, PenstockError
from penstock.model import Door, Properties
from penstock.runs import Run, bare_shape
from penstock.wire.sidecar.messages.nexusd import PublishRequest
from penstock.wire.sidecar.publish import encode_published, read_plain_publish

QOS = 1
"""Highest durability without packet identifiers: the response waits for the commit."""


_DOOR: Final = Door.SIDECAR
_PASSING: Final = bare_shape(_DOOR, QOS, False)
_RETAINED: Final = bare_shape(_DOOR, QOS, True)


class PublishMethod:
    """Publishes what calls bring."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._broker = sidecar.broker

    def read(self, message: bytes) -> Run:
        """Decode the message of a request.

        Raises:
            DecodeError: it is not a request.
            PenstockError: something of it cannot be.
        """
        plain = read_plain_publish(message)
        if plain is None:
            return run_of(PublishRequest.FromString(message), self._broker.settings.topic)
        topic, payload = plain
        return Run(topic, payload, 0, len(payload), 1, _PASSING)

    def publish(self, call: Call, run: Run) -> None:
        """Publish a message as soon as it is its caller's turn."""
        identity, peer, broker = call.identity, call.peer, self._broker
        assert identity is not None
        # A publisher to another topic does not wait for the subscribers of this one, and one on
        # another connection waits for them at the same time.
        sender = broker.request_sender(identity, _DOOR, f"{peer.host} {peer.port} {run.topic}")
        if broker.is_unblocked(sender):
            self._publish(call, run, sender)
        else:
            broker.when_unblocked(sender, partial(self._publish, call, run, sender))

    def _publish(self, call: Call, run: Run, sender: Session) -> None:
        if call.is_over:
            return  # while it waited
        try:
            receipt = self._broker.publish_once(run, sender)
        except PenstockError as error:
            self._refuse(call, error)
        else:
            self._broker.when_accepted(run, sender, receipt.ticket, partial(self._respond, call, receipt))

    def _respond(self, call: Call, receipt: Receipt, outcome: Outcome, failure: Exception | None) -> None:
        if failure is not None:
            self._refuse(call, error_of(failure))
            return
        offset = receipt.offset
        message_id = self._sidecar.marks.at(offset).message_id(offset)
        call.respond(encode_published(message_id, receipt.subscribers, outcome.dropped, outcome.blocked))

    def _refuse(self, call: Call, error: PenstockError) -> None:
        self._sidecar.counters.publishes_refused += 1
        self._sidecar.refuse(call, error)


def run_of(request: PublishRequest, limits: TopicLimits) -> Run:
    """The message of a request.

    Raises:
        PenstockError: something of it cannot be.
    """
    if not 0 <= request.ttl_ms <= MAX_TTL_MS:
        raise InvalidRequest(f"ttl_ms is a number from 0 to {MAX_TTL_MS}")
    payload = request.payload
    properties = _properties_of(request, limits)
    shape = _RETAINED if request.retain else _PASSING
    return Run(request.topic, payload, 0, len(payload), 1, shape, properties, request.ttl_ms / 1_000)


def _properties_of(request: PublishRequest, limits: TopicLimits) -> Properties | None:
    if not (request.content_type or request.correlation_id):
        return None
    properties = Properties(
        content_type=request.content_type or None,
        correlation_id=request.correlation_id.encode() or None,
    )
    check_properties(properties, limits)
    return properties
