"""One MQTT connection: packets in, calls to core, packets out.

It is an asyncio protocol and core's sink at once. Reading and writing never wait: a chunk is taken
whole, deliveries arrive as joined bytes at the tick's flush, acknowledgements follow in the same turn.
Control packets are written at once and so never wait behind an outbox.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from penstock.core.broker import Receipt
from penstock.core.ports import Form
from penstock.core.sessions import Ending, Options, Session
from penstock.doors.mqtt.answers import ENDINGS, SUBACK_FAILURE, reason_of
from penstock.doors.mqtt.forms import MqttForm, form_of
from penstock.errors import PenstockError
from penstock.model import Run
from penstock.wire.mqtt.encode import PINGRESP, encode_packet
from penstock.wire.mqtt.packets import (
    Auth,
    Connect,
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
from penstock.wire.mqtt.reader import RunReader
from penstock.wire.mqtt.reasons import MqttWireError, ProtocolViolation, ReasonCode

if TYPE_CHECKING:
    from penstock.doors.mqtt.door import MqttDoor

CLOSING_TIMEOUT_S = 5.0
"""How long the last bytes may take to leave a connection that is being closed."""
CONTROL_LIMIT_BYTES = 1024 * 1024
"""How many bytes of answers a peer may leave unread before we read no more from it."""
_SUCCESS = ReasonCode.SUCCESS


class Connection(asyncio.BufferedProtocol):
    """What stands between one socket and core."""

    __slots__ = (
        "_acks",
        "_deadline_s",
        "_door",
        "_is_closing",
        "_is_graceful",
        "_is_held",
        "_is_reading",
        "_last_seen",
        "_limit_bytes",
        "_loop",
        "_reader",
        "_session",
        "_transport",
        "_waiting",
        "expiry",
        "peer",
        "version",
    )

    _transport: asyncio.Transport

    def __init__(self, door: "MqttDoor") -> None:
        self._door = door
        self._loop = door.loop
        self._reader = RunReader(door.limit_bytes, door.names, door.settings.topic_alias_maximum)
        self._session: Session | None = None
        self._acks: list[bytes] | None = None
        self._waiting: list[Packet | Run] | None = None  # read while the password is still checked
        self._last_seen = 0.0
        self._deadline_s = door.settings.connect_timeout_s
        self._limit_bytes = 0
        self._is_closing = self._is_graceful = self._is_held = False
        self._is_reading = True
        self.version = Version.V311
        self.expiry: float | None = None
        self.peer = ""

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else ""
        self._transport.set_write_buffer_limits(high=self._door.settings.write_buffer_bytes)
        self._last_seen = self._loop.time()
        self._door.on_open(self, self._last_seen + self._deadline_s)

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._door.buffer

    def buffer_updated(self, size: int) -> None:
        data = bytes(self._door.buffer[:size])
        self._last_seen = now = self._loop.time()
        self._door.counters.bytes_received += size
        tick = self._door.tick
        is_alone = tick.open_alone(now)
        items = self._reader.feed(data)
        if self._waiting is not None:
            self._waiting += items
        elif items:
            self._take(items)
        if self._reader.error is not None and self._waiting is None:
            self._on_wire_error(self._reader.error)
        if is_alone:
            tick.flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        session, self._session = self._session, None
        if session is not None:
            self._door.broker.disconnect(session, self, is_graceful=self._is_graceful, expiry=self.expiry)
        self._door.on_lost(self)

    def pause_writing(self) -> None:
        if self._session is not None and self._session.sink is self:
            self._door.broker.pause(self._session)

    def resume_writing(self) -> None:
        self._set_reading()
        if self._session is not None and self._session.sink is self:
            self._door.broker.unpause(self._session)

    def check_deadline(self, now: float) -> float | None:
        """Keep alive, the time for CONNECT, and the time for the last bytes after a close."""
        if self._transport.is_closing() and not self._is_closing:
            return None
        due = self._last_seen + self._deadline_s
        if not self._deadline_s:
            return None
        if not self._is_reading and not self._is_closing:
            return now + self._deadline_s  # we are the ones who do not listen: its clock stands still
        if now < due:
            return due
        if self._is_closing or self._session is None:
            self._transport.abort()
            return None
        self._door.note("keep alive timeout", self, self._session.client_id)
        self.end(ReasonCode.KEEP_ALIVE_TIMEOUT)
        return now + CLOSING_TIMEOUT_S

    # Core's sink

    def write(self, data: bytes) -> None:
        self._door.counters.bytes_sent += len(data)
        self._transport.write(data)

    def hold(self, *, is_unacknowledged: bool) -> None:
        self._is_held = True
        if is_unacknowledged:
            self._set_reading(wanted=False)

    def release(self) -> None:
        self._is_held = False
        self._last_seen = self._loop.time()
        self._set_reading()
        if self._acks:
            self._write_acks()

    def close(self, reason: str) -> None:
        self._session = None  # core has let go of it, or will
        self.end(ENDINGS[Ending(reason)])

    # Packets

    def _take(self, items: list[Packet | Run]) -> None:
        """Act on what was read, in order."""
        session = self._session
        if session is None:
            if not self._is_closing:
                self._on_first(items)
            return
        self._door.counters.packets_received += len(items)
        if self._reader.is_plain:
            self._door.broker.publish_all(cast("list[Run]", items), session, self._on_refused)
            return
        for item in items:
            if type(item) is not Run:
                try:
                    _HANDLERS[type(item)](self, item, session)
                except MqttWireError as error:
                    self._on_wire_error(error)
            elif item.packet_id:
                self._on_numbered(item, session)
            else:
                self._door.broker.publish_all((item,), session, self._on_refused)
            if self._is_closing:
                return

    def _on_first(self, items: list[Packet | Run]) -> None:
        """The first packet must be CONNECT; the rest waits until it is answered."""
        packet = items[0]
        if not isinstance(packet, Connect):
            self._transport.abort()  # MQTT-3.1.0-1
            self._is_closing = True
            return
        self.version = packet.version
        self._waiting = items[1:]
        self._door.admit(self, packet)

    def set_wire(self, limit_bytes: int) -> None:
        """How large a packet the client takes; 0 if it did not say."""
        self._limit_bytes = limit_bytes

    def accept(self, session: Session, connack: bytes, keep_alive_s: float) -> None:
        """The door let the client in: answer, send again what was on its way, go on."""
        self._session = session
        self._deadline_s = keep_alive_s
        if keep_alive_s:
            self._door.watch(self, self._last_seen + keep_alive_s)
        self.write(connack)
        self._send_again(session)
        self._door.broker.resume(session)
        waiting, self._waiting = self._waiting, None
        self._set_reading()
        if waiting:
            self._take(waiting)
        if self._reader.error is not None:
            self._on_wire_error(self._reader.error)

    def _send_again(self, session: Session) -> None:
        """In-flight first: same packet identifiers, marked as duplicates (MQTT-4.4.0-1)."""
        if session.inflight is None:
            return
        now, parts = self._door.clock.monotonic(), []
        for number, pending in session.inflight.entries.items():
            if pending is None:
                parts.append(encode_packet(PubRel(number), self.version))
                continue
            for before, after, _ in pending.form.frames((pending.run,), now, again=True):
                parts += (before, number.to_bytes(2, "big"), after)
        if parts:
            self.write(b"".join(parts))

    def reform(self, form: Form) -> Form:
        """A form of this session's last connection, for this one."""
        assert isinstance(form, MqttForm)
        return form.on_wire(self.version, self._limit_bytes)

    def _on_numbered(self, run: Run, session: Session) -> None:
        """A publish at QoS 1 or 2."""
        packet_id = run.packet_id
        is_twice = run.shape.qos == 2 and session.received is not None and packet_id in session.received
        if self.version is Version.V5 and not is_twice and self._is_window_exceeded(session):
            self.end(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
            return
        receipt: Receipt | None = None
        reason = _SUCCESS
        if not is_twice:
            try:
                receipt = self._door.broker.publish(run, session)
            except PenstockError as error:
                reason = reason_of(error)
                self._on_refused(run, error)
        if run.shape.qos == 1:
            ack = (
                b"\x40\x02" + packet_id.to_bytes(2, "big")
                if not reason
                else self._encode_ack(PubAck, packet_id, reason)
            )
        else:
            if not reason:
                if session.received is None:
                    session.received = set()
                session.received.add(packet_id)
            ack = self._encode_ack(PubRec, packet_id, reason)
        self._acknowledge(ack, receipt)

    def _is_window_exceeded(self, session: Session) -> bool:
        waiting = len(self._acks or ()) + len(session.received or ())
        return waiting >= self._door.settings.receive_maximum

    def _encode_ack(self, kind: type[PubAck] | type[PubRec], packet_id: int, reason: ReasonCode) -> bytes:
        # MQTT 3.1.1 has no word for a refusal: the message is acknowledged and not published.
        return encode_packet(kind(packet_id, reason), self.version)

    def _acknowledge(self, ack: bytes, receipt: Receipt | None) -> None:
        if self._acks is None:
            self._acks = []
        if not self._acks:
            if receipt is None:
                self._door.broker.tick.after(self._write_acks)
            else:
                self._door.broker.when_settled(receipt, self._write_acks)
        self._acks.append(ack)

    def _write_acks(self) -> None:
        if self._acks and not self._is_held and not self._is_closing:
            acks, self._acks = self._acks, []
            self._control(b"".join(acks))

    def _on_refused(self, run: Run, error: PenstockError) -> None:
        assert self._session is not None
        self._door.on_refused(self, self._session.client_id, run, error)

    def _on_puback(self, packet: PubAck, session: Session) -> None:
        if packet.reason < 0x80:
            self._door.broker.acknowledge(session, packet.packet_id)
        else:
            self._door.broker.refuse(session, packet.packet_id)

    def _on_pubrec(self, packet: PubRec, session: Session) -> None:
        if packet.reason >= 0x80:
            self._door.broker.refuse(session, packet.packet_id)
            return
        is_known = session.inflight is not None and session.inflight.release(packet.packet_id)
        reason = _SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        self._answer(PubRel(packet.packet_id, reason))

    def _on_pubrel(self, packet: PubRel, session: Session) -> None:
        is_known = session.received is not None and packet.packet_id in session.received
        if is_known and session.received is not None:
            session.received.discard(packet.packet_id)
        reason = _SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        self._answer(PubComp(packet.packet_id, reason))

    def _on_pubcomp(self, packet: PubComp, session: Session) -> None:
        self._door.broker.acknowledge(session, packet.packet_id)

    def _on_subscribe(self, packet: Subscribe, session: Session) -> None:
        identifier = packet.properties.subscription_ids[0] if packet.properties.subscription_ids else 0
        reasons = tuple(self._subscribe(request, identifier, session) for request in packet.requests)
        self._answer(SubAck(packet.packet_id, reasons))

    def _subscribe(self, request: Request, identifier: int, session: Session) -> int:
        options = Options(request.qos, request.no_local, request.retain_as_published, identifier)
        try:
            self._door.broker.subscribe(
                session,
                request.filter,
                options,
                form_of(options, self.version, self._limit_bytes),
                policy=self._door.settings.policy,
                retained=request.retain_handling < 2,
                retained_if_known=request.retain_handling == 0,
            )
        except PenstockError as error:
            self._door.note("subscription refused", self, session.client_id, request.filter, str(error))
            return reason_of(error) if self.version is Version.V5 else SUBACK_FAILURE
        return request.qos

    def _on_unsubscribe(self, packet: Unsubscribe, session: Session) -> None:
        reasons = tuple(
            _SUCCESS if self._door.broker.unsubscribe(session, filter) else ReasonCode.NO_SUBSCRIPTION_EXISTED
            for filter in packet.filters
        )
        self._answer(UnsubAck(packet.packet_id, reasons))

    def _on_pingreq(self, packet: PingReq, session: Session) -> None:
        self._control(PINGRESP)

    def _on_disconnect(self, packet: Disconnect, session: Session) -> None:
        expiry = packet.properties.session_expiry
        if expiry is not None:
            if expiry and not session.is_persistent:
                raise ProtocolViolation("a session that ends with its connection cannot be prolonged")
            self.expiry = float(expiry)
        self._is_graceful = packet.reason != ReasonCode.DISCONNECT_WITH_WILL
        self._end_now()

    def _on_unexpected(self, packet: Packet, session: Session) -> None:
        raise ProtocolViolation(f"{type(packet).__name__.upper()} from a client")

    # Ending

    def _on_wire_error(self, error: MqttWireError) -> None:
        if self._is_closing:
            return
        self._door.on_wire_error(self, error)
        if self._session is None:
            self._door.refuse(self, error.reason)
        else:
            self.end(error.reason)

    def turn_away(self, connack: bytes) -> None:
        """The door did not let the client in."""
        self._waiting = None
        if not self._is_closing:
            self.write(connack)
            self._end_now()

    def end(self, reason: ReasonCode) -> None:
        """Say why, as far as the client's version has words for it, and close."""
        if self._is_closing:
            return
        if self.version is Version.V5:
            self.write(encode_packet(Disconnect(reason), self.version))
        self._end_now()

    def _end_now(self) -> None:
        """Close when everything written has left; abort if that takes too long."""
        self._is_closing = True
        self._last_seen = self._loop.time()
        self._deadline_s = CLOSING_TIMEOUT_S
        self._transport.close()
        self._door.watch(self, self._last_seen + CLOSING_TIMEOUT_S)

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._transport.abort()

    # Writing

    def _answer(self, packet: Packet) -> None:
        self._control(encode_packet(packet, self.version))

    def _control(self, data: bytes) -> None:
        """Write a control packet: at once, past everything that waits in the outbox."""
        if self._is_closing:
            return
        self.write(data)
        if self._transport.get_write_buffer_size() > CONTROL_LIMIT_BYTES:
            self._set_reading(wanted=False)  # it asks without reading the answers

    def suspend(self) -> None:
        """Read no more until the password is checked."""
        self._set_reading(wanted=False)

    def _set_reading(self, *, wanted: bool = True) -> None:
        wanted = wanted and not self._is_held and self._waiting is None
        if wanted is self._is_reading or self._is_closing:
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


_HANDLERS: dict[type, Callable[[Connection, Any, Session], None]] = {
    PubAck: Connection._on_puback,
    PubRec: Connection._on_pubrec,
    PubRel: Connection._on_pubrel,
    PubComp: Connection._on_pubcomp,
    Subscribe: Connection._on_subscribe,
    Unsubscribe: Connection._on_unsubscribe,
    PingReq: Connection._on_pingreq,
    Disconnect: Connection._on_disconnect,
    Auth: Connection._on_unexpected,
}
