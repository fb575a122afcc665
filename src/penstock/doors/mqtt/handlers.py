"""What each packet of a client means, PUBLISH excepted: calls to core, and the answer.

Publishes are the connection's own business, because they come in runs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.core.sessions import Options, Session
from penstock.doors.mqtt.answers import SUBACK_FAILURE, reason_of
from penstock.doors.mqtt.forms import form_of
from penstock.errors import PenstockError
from penstock.wire.mqtt.encode import PINGRESP
from penstock.wire.mqtt.packets import (
    Disconnect,
    Packet,
    PingReq,
    PubAck,
    PubComp,
    PubRec,
    PubRel,
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


def on_puback(connection: "Connection", packet: PubAck, session: Session) -> None:
    """A delivery at QoS 1 is complete, or was refused."""
    if packet.reason < 0x80:
        connection.door.broker.acknowledge(session, packet.packet_id)
    else:
        connection.door.broker.refuse(session, packet.packet_id)
    connection.on_acknowledged(session)


def on_pubrec(connection: "Connection", packet: PubRec, session: Session) -> None:
    """A delivery at QoS 2 arrived, or was refused."""
    if packet.reason >= 0x80:
        connection.door.broker.refuse(session, packet.packet_id)
        connection.on_acknowledged(session)
        return
    is_known = session.inflight is not None and session.inflight.release(packet.packet_id)
    reason = _SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    connection.answer(PubRel(packet.packet_id, reason))


def on_pubrel(connection: "Connection", packet: PubRel, session: Session) -> None:
    """A client will not send its message at QoS 2 again."""
    is_known = session.received is not None and packet.packet_id in session.received
    if is_known and session.received is not None:
        session.received.discard(packet.packet_id)
    reason = _SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    connection.answer(PubComp(packet.packet_id, reason))


def on_pubcomp(connection: "Connection", packet: PubComp, session: Session) -> None:
    """A delivery at QoS 2 is complete."""
    connection.door.broker.acknowledge(session, packet.packet_id)
    connection.on_acknowledged(session)


def on_subscribe(connection: "Connection", packet: Subscribe, session: Session) -> None:
    """Each filter is granted or refused for itself; one answer tells of all."""
    identifier = packet.properties.subscription_ids[0] if packet.properties.subscription_ids else 0
    reasons = tuple(_subscribe(connection, request, identifier, session) for request in packet.requests)
    connection.answer(SubAck(packet.packet_id, reasons))


def _subscribe(connection: "Connection", request: Request, identifier: int, session: Session) -> int:
    options = Options(request.qos, request.no_local, request.retain_as_published, identifier)
    try:
        connection.door.broker.subscribe(
            session,
            request.filter,
            options,
            form_of(options, connection.version, connection.limit_bytes),
            policy=connection.door.settings.policy,
            retained=request.retain_handling < 2,
            retained_if_known=request.retain_handling == 0,
        )
    except PenstockError as error:
        connection.door.note("subscription refused", connection, request.filter, str(error))
        return reason_of(error) if connection.version is Version.V5 else SUBACK_FAILURE
    return request.qos


def on_unsubscribe(connection: "Connection", packet: Unsubscribe, session: Session) -> None:
    """Filters are removed if their text is the same to the last character."""
    unsubscribe = connection.door.broker.unsubscribe
    reasons = tuple(
        _SUCCESS if unsubscribe(session, filter) else ReasonCode.NO_SUBSCRIPTION_EXISTED
        for filter in packet.filters
    )
    connection.answer(UnsubAck(packet.packet_id, reasons))


def on_pingreq(connection: "Connection", packet: PingReq, session: Session) -> None:
    """That the client was heard is noted already."""
    connection.control(PINGRESP)


def on_disconnect(connection: "Connection", packet: Disconnect, session: Session) -> None:
    """A goodbye; only a plain one takes the will with it (MQTT-3.1.2-10, MQTT-3.14.4-3)."""
    expiry = packet.properties.session_expiry
    if expiry and not session.is_persistent:
        raise ProtocolViolation("a session that ends with its connection cannot be prolonged")
    connection.leave(is_graceful=packet.reason == _SUCCESS, expiry=None if expiry is None else float(expiry))


def on_unexpected(connection: "Connection", packet: Packet, session: Session) -> None:
    """A second CONNECT (MQTT-3.1.0-2), what only a server sends, or AUTH without a method for it."""
    raise ProtocolViolation(f"{type(packet).__name__.upper()} is not expected here")


HANDLERS: dict[type, Callable[["Connection", Any, Session], None]] = {
    PubAck: on_puback,
    PubRec: on_pubrec,
    PubRel: on_pubrel,
    PubComp: on_pubcomp,
    Subscribe: on_subscribe,
    Unsubscribe: on_unsubscribe,
    PingReq: on_pingreq,
    Disconnect: on_disconnect,
}
"""Whatever is not here is `on_unexpected`."""
