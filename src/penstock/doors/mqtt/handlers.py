"""Packet handlers, except for PUBLISH: calls to core, and the responses.

Publishes are in `connection.py` and `inbound.py`, because they come in runs.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.common.topics import SHARE_PREFIX
from penstock.core.delivery.inflight import AWAITS_ACK, AWAITS_COMPLETION
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.subscription import Options
from penstock.doors.mqtt.capabilities import subscription_refusal
from penstock.doors.mqtt.encodings import encoding_of
from penstock.doors.mqtt.meta_properties import ASKED_BY
from penstock.doors.mqtt.reason_codes import SUBACK_FAILURE, ResponsePacket, in_words, reason_of
from penstock.errors import PenstockError
from penstock.wire.mqtt.ack_runs import PUBACK, PUBCOMP, PUBREC, PUBREL, AckRun
from penstock.wire.mqtt.encode import PINGRESP
from penstock.wire.mqtt.packets import (
    Auth,
    Disconnect,
    Packet,
    PacketType,
    PingReq,
    PubAck,
    PubComp,
    PubRec,
    PubRel,
    Reply,
    Request,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
)
from penstock.wire.mqtt.reasons import ProtocolViolation, ReasonCode

if TYPE_CHECKING:
    from penstock.doors.mqtt.connection import Connection

_SUCCESS = ReasonCode.SUCCESS
FILTERS_A_STEP = 16
"""Filters of one packet that are worked off in one step; the next step may come in a later turn."""
KINDS: dict[type[Reply], int] = {PubAck: PUBACK, PubRec: PUBREC, PubRel: PUBREL, PubComp: PUBCOMP}


def _respond(
    connection: "Connection", packet: ResponsePacket | AckRun, session: Session, *, is_changed: bool
) -> None:
    """Respond to a request: after the commit of its changes, or at once if there are none."""
    if is_changed:
        connection.respond_after_commit(packet, session)
    else:
        connection.respond(packet)


def on_acks(connection: "Connection", acks: AckRun, session: Session) -> None:
    """Acknowledgements of one kind, in order, up to one that its delivery does not wait for.

    Unknown numbers pass: their delivery is complete, or the session is new. The first of a run is counted
    already, as every packet is.
    """
    kind, numbers = acks.kind, acks.packet_ids
    if kind == PUBACK or kind == PUBCOMP:  # noqa: PLR1714, SIM109 - a tuple would be made each time
        awaited = AWAITS_ACK if kind == PUBACK else AWAITS_COMPLETION
        if connection.outbound.redelivery is None:
            taken = connection.door.broker.acknowledge(session, numbers, awaited)
        else:
            taken = _acknowledge_each(connection, session, numbers, awaited)
    elif kind == PUBREC:
        known = connection.door.broker.confirm_receipts(session, numbers)
        taken = len(known)
        _respond_to_acks(connection, session, PUBREL, numbers, known)
    else:
        known = connection.door.broker.end_qos2(session, numbers)
        taken = len(known)
        _respond_to_acks(connection, session, PUBCOMP, numbers, known)
    count = len(numbers)
    if count > 1:
        connection.door.counters.control_packets_received += min(taken, count - 1)
    if taken < count:  # MQTT 5 section 4.3
        raise ProtocolViolation(f"{PacketType(kind).name} is not what this delivery waits for")


def _acknowledge_each(
    connection: "Connection", session: Session, numbers: tuple[int, ...], awaited: int
) -> int:
    """Complete deliveries while others are sent again; return how many numbers were taken.

    Each makes room for one more, which may be the one that the next number acknowledges.
    """
    taken = 0
    while taken < len(numbers) and connection.door.broker.acknowledge(session, (numbers[taken],), awaited):
        connection.outbound.on_acknowledged(session)
        taken += 1
    return taken


def _respond_to_acks(
    connection: "Connection", session: Session, kind: int, numbers: tuple[int, ...], known: list[bool]
) -> None:
    """Respond to acknowledgements: to unknown numbers at once, to others after the commit."""
    start, count = 0, len(known)
    while start < count:
        is_known = known[start]
        try:
            stop = known.index(not is_known, start)
        except ValueError:  # the rest is alike
            stop = count
        reason = _SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        _respond(connection, AckRun(kind, numbers[start:stop], reason), session, is_changed=is_known)
        start = stop


def on_reply(connection: "Connection", packet: Reply, session: Session) -> None:
    """An acknowledgement in a longer form, which may refuse a delivery."""
    kind = KINDS[type(packet)]
    if packet.reason < 0x80 or kind in (PUBREL, PUBCOMP):
        on_acks(connection, AckRun(kind, (packet.packet_id,)), session)
        return
    broker = connection.door.broker
    awaited = broker.awaited_step(session, packet.packet_id)
    if awaited is not None and (awaited == AWAITS_ACK) != (kind == PUBACK):
        raise ProtocolViolation(f"{PacketType(kind).name} is not what this delivery waits for")
    broker.refuse(session, packet.packet_id)
    connection.outbound.on_acknowledged(session)


def on_subscribe(connection: "Connection", packet: Subscribe, session: Session) -> Iterator[None]:
    """SUBSCRIBE: each filter is granted or refused by itself, with one response for all. It takes steps."""
    given = packet.properties
    identifier = given.subscription_ids[0] if given.subscription_ids else 0
    wants_marks = any(name == ASKED_BY for name, _ in given.user)
    words: dict[str, None] = {}  # what went wrong, each thing said once
    reasons: list[int] = []
    for place, request in enumerate(packet.requests, 1):
        options = Options(
            min(request.qos, connection.door.settings.maximum_qos),
            request.no_local or (connection.is_bridge and not request.filter.startswith(SHARE_PREFIX)),
            request.retain_as_published or connection.is_bridge,
            identifier,
            wants_marks,
        )
        try:
            reasons.append(_subscribe(connection, request, options, session))
        except PenstockError as error:
            connection.door.on_subscription_refused(connection, request.filter, error)
            words[str(error)] = None
            reasons.append(reason_of(error) if connection.version is Version.V5 else SUBACK_FAILURE)
        if not place % FILTERS_A_STEP and place < len(packet.requests):
            yield
    response = SubAck(packet.packet_id, tuple(reasons))
    response = in_words(response, "; ".join(words)) if words and connection.explains else response
    _respond(connection, response, session, is_changed=any(reason < SUBACK_FAILURE for reason in reasons))


def _subscribe(connection: "Connection", request: Request, options: Options, session: Session) -> int:
    door = connection.door
    refusal = subscription_refusal(door.settings, request.filter, options.identifier)
    if refusal is not None:
        return refusal if connection.version is Version.V5 else SUBACK_FAILURE
    door.broker.subscribe(
        session,
        request.filter,
        options,
        encoding_of(options, connection.version, connection.limit_bytes, door.marks),
        policy=door.settings.policy,
        retained=request.retain_handling < 2,
        retained_if_known=request.retain_handling == 0,
    )
    return options.qos


def on_unsubscribe(connection: "Connection", packet: Unsubscribe, session: Session) -> Iterator[None]:
    """Filters are removed if their text is the same to the last character. It takes steps."""
    broker = connection.door.broker
    reasons: list[int] = []
    for place, filter in enumerate(packet.filters, 1):
        if not place % FILTERS_A_STEP:
            yield
        if broker.unsubscribe(session, filter):
            reasons.append(_SUCCESS)
        else:
            is_filter = broker.is_filter(filter)
            reasons.append(
                ReasonCode.NO_SUBSCRIPTION_EXISTED if is_filter else ReasonCode.TOPIC_FILTER_INVALID
            )
    _respond(connection, UnsubAck(packet.packet_id, tuple(reasons)), session, is_changed=_SUCCESS in reasons)


def on_pingreq(connection: "Connection", packet: PingReq, session: Session) -> None:
    """That the client was heard is noted already."""
    connection.outbound.control(PINGRESP)


def on_disconnect(connection: "Connection", packet: Disconnect, session: Session) -> None:
    """A goodbye; only a plain one takes the will with it (MQTT-3.1.2-10, MQTT-3.14.4-3)."""
    expiry = packet.properties.session_expiry
    if expiry and not session.is_persistent:
        raise ProtocolViolation("a session that ends with its connection cannot be prolonged")
    connection.leave(is_graceful=packet.reason == _SUCCESS, expiry=None if expiry is None else float(expiry))


def on_auth(connection: "Connection", packet: Auth, session: Session) -> None:
    """AUTH: re-authentication."""
    connection.door.admission.authentication.prove_again(connection, packet, session)


def on_unexpected(connection: "Connection", packet: Packet, session: Session) -> None:
    """A second CONNECT (MQTT-3.1.0-2), or what only a server sends."""
    raise ProtocolViolation(f"{type(packet).__name__.upper()} is not expected here")


HANDLERS: dict[type, Callable[["Connection", Any, Session], Iterator[None] | None]] = {
    AckRun: on_acks,
    PubAck: on_reply,
    PubRec: on_reply,
    PubRel: on_reply,
    PubComp: on_reply,
    Subscribe: on_subscribe,
    Unsubscribe: on_unsubscribe,
    PingReq: on_pingreq,
    Disconnect: on_disconnect,
    Auth: on_auth,
}
"""Handlers by packet; all others are `on_unexpected`. An iterator that one returns takes a step with each
item."""
