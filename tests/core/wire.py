"""A wire between a client and core: what a door does, packet by packet, without bytes.

Packets travel in order, both ways, and what is under way is lost with the connection. A line says what the
MQTT door says: it answers when what it was told outlives the server, and closes where MQTT 3.1.1 has no word.
"""

from collections import deque
from enum import StrEnum

from msgspec import Struct

from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival
from penstock.core.delivery.inflight import AWAITS_ACK, AWAITS_COMPLETION
from penstock.core.ports.log import Ticket
from penstock.core.sessions.session import Ending, Session
from penstock.core.subscriptions.subscription import Options
from penstock.errors import PenstockError
from penstock.model import Door, Policy, Will
from penstock.runs import Run
from tests.support.broker import Stage
from tests.support.encodings import PlainEncoding, as_plain, read_frames
from tests.support.samples import make_run

ROOM_PACKETS = 8
"""How many packets a client may leave unread before its socket is full."""


class Kind(StrEnum):
    """The packets of MQTT that matter here."""

    CONNACK = "connack"
    PUBLISH = "publish"
    PUBACK = "puback"
    PUBREC = "pubrec"
    PUBREL = "pubrel"
    PUBCOMP = "pubcomp"
    SUBSCRIBE = "subscribe"
    SUBACK = "suback"
    UNSUBSCRIBE = "unsubscribe"
    UNSUBACK = "unsuback"


class Packet(Struct, frozen=True):
    """One packet; `number` is its packet identifier."""

    kind: Kind
    number: int = 0
    is_ok: bool = True
    """Its reason is below 0x80; in CONNACK, there is a session."""
    qos: int = 0
    topic: str = ""
    """Or the filter."""
    payload: bytes = b""


class Line:
    """One connection, with the door at its far end."""

    def __init__(
        self,
        stage: Stage,
        client_id: str,
        *,
        clean: bool = False,
        expiry: float = 3_600.0,
        window: int = 100,
        will: Will | None = None,
        is_v5: bool = True,
    ) -> None:
        self._stage = stage
        self._broker = stage.broker
        self._is_v5 = is_v5
        self.down: deque[Packet] = deque()  # to the client
        self.ending: str | None = None  # why the door has closed
        self._is_full = False
        self._acks: deque[tuple[Ticket, Packet, Session]] = deque()  # each waits for its commit
        arrival = Arrival(Identity(None, client_id), Door.MQTT, clean, expiry, window, will, object())
        self.session: Session | None = None
        try:
            session, is_known = self._broker.connect(arrival, self, as_plain)
        except PenstockError as error:
            self.ending = error.code
            return
        self._broker.when_session_stored(session, lambda failure: self._answer(session, is_known, failure))

    @property
    def is_open(self) -> bool:
        return self.ending is None

    def _answer(self, session: Session, is_known: bool, failure: Exception | None) -> None:
        if not self.is_open:
            self._broker.disconnect(session, self, is_graceful=False)
        elif failure is not None:
            self._broker.disconnect(session, self, is_graceful=True, expiry=None if is_known else 0.0)
            self.ending = "refused"
        else:
            self.session = session
            self.down.append(Packet(Kind.CONNACK, is_ok=is_known))
            self._send_again(session)
            self._broker.resume(session)

    def _send_again(self, session: Session) -> None:
        now = self._stage.clock.monotonic()
        for number, pending in session.inflight.entries.items() if session.inflight else ():
            if pending is None:
                self.down.append(Packet(Kind.PUBREL, number))
            else:
                ((before, after, _),) = pending.encoding.frames((pending.run,), now, again=True)
                self.write(before + number.to_bytes(2, "big") + after)

    # Core's sink

    def write(self, data: bytes) -> None:
        for frame in read_frames(data) if self.is_open else ():
            assert self.session is not None, "nothing may come before CONNACK"
            packet = Packet(
                Kind.PUBLISH, frame.number, qos=frame.qos, topic=frame.topic, payload=frame.payload
            )
            self.down.append(packet)
        if len(self.down) >= ROOM_PACKETS and not self._is_full and self.session is not None:
            self._is_full = True
            self._broker.pause(self.session)

    def block(self, *, is_unacknowledged: bool, withholds_acks: bool = True) -> None:
        raise AssertionError("nobody blocks anybody here")

    def unblock(self) -> None:
        raise AssertionError("nobody blocks anybody here")

    def close(self, reason: str) -> None:
        session, self.session = self.session, None
        self.ending = str(Ending(reason))
        if session is not None and session.connection is self:
            self._stage.scheduler.call_soon(lambda: self._broker.disconnect(session, self, is_graceful=False))

    # The client's end

    def read(self) -> Packet:
        """Take the next packet off the wire."""
        packet = self.down.popleft()
        if self._is_full and not self.down and self.session is not None:
            self._is_full = False
            self._broker.unpause(self.session)
        return packet

    def cut(self) -> None:
        """The connection is gone, and what was under way with it."""
        if self.is_open:
            self.ending = "cut"
            if self.session is not None:
                self._broker.disconnect(self.session, self, is_graceful=False)

    def goodbye(self) -> None:
        """The client says that it goes."""
        if self.is_open and self.session is not None:
            self.ending = "goodbye"
            self._broker.disconnect(self.session, self, is_graceful=True)

    # Packets of the client

    def take(self, packet: Packet) -> None:
        """Act on a packet that has arrived."""
        session = self.session
        assert session is not None
        if packet.kind is Kind.PUBLISH:
            run = make_run(packet.topic, packet.payload, qos=packet.qos)
            if packet.qos == 1:
                self._take_level_one(session, run, packet.number)
            else:
                self._take_level_two(session, run, packet.number)
        elif packet.kind in (Kind.PUBACK, Kind.PUBCOMP):
            awaited = AWAITS_ACK if packet.kind is Kind.PUBACK else AWAITS_COMPLETION
            assert self._broker.acknowledge(session, (packet.number,), awaited) == 1
        elif packet.kind is Kind.PUBREC:
            self._broker.confirm_receipts(session, (packet.number,))
            self._answer_stored(session, Packet(Kind.PUBREL, packet.number))
        elif packet.kind is Kind.PUBREL:
            self._broker.end_qos2(session, (packet.number,))
            self._answer_stored(session, Packet(Kind.PUBCOMP, packet.number))
        elif packet.kind is Kind.SUBSCRIBE:
            self._subscribe(session, packet)
        else:
            self._broker.unsubscribe(session, packet.topic)
            self._answer_stored(session, Packet(Kind.UNSUBACK, packet.number, topic=packet.topic))

    def _subscribe(self, session: Session, packet: Packet) -> None:
        options, encoding = Options(packet.qos), PlainEncoding(qos=packet.qos)
        try:
            self._broker.subscribe(session, packet.topic, options, encoding, policy=Policy.DROP_NEWEST)
            is_ok = True
        except PenstockError:
            is_ok = False
        self._answer_stored(session, Packet(Kind.SUBACK, packet.number, is_ok, topic=packet.topic))

    def _take_level_one(self, session: Session, run: Run, number: int) -> None:
        refused: list[PenstockError] = []
        receipt = self._broker.publish_all([run], session, lambda _, error: refused.append(error))
        self._acknowledge(session, Packet(Kind.PUBACK, number, not refused), receipt.ticket)

    def _take_level_two(self, session: Session, run: Run, number: int) -> None:
        if session.received is not None and number in session.received:
            self._acknowledge(session, Packet(Kind.PUBREC, number), session.received[number])
            return
        try:
            ticket = self._broker.publish(run, session).ticket
        except PenstockError:
            self._acknowledge(session, Packet(Kind.PUBREC, number, is_ok=False), None)
            return
        self._broker.begin_qos2(session, number, ticket)
        self._acknowledge(session, Packet(Kind.PUBREC, number), ticket)

    def _acknowledge(self, session: Session, packet: Packet, ticket: Ticket | None) -> None:
        """Answers keep the order of the publishes."""
        if not packet.is_ok and not self._is_v5:
            self._end()
            return
        ticket = max(ticket or 0, self._acks[-1][0] if self._acks else 0)
        self._acks.append((ticket, packet, session))
        self._broker.when_committed(ticket or None, self._on_settled)

    def _on_settled(self, failure: Exception | None) -> None:
        _, packet, session = self._acks.popleft()
        is_safe = packet.kind is Kind.PUBREC and packet.number in (session.received or ())
        if failure is not None and not is_safe:
            packet = Packet(packet.kind, packet.number, is_ok=False)
            if not self._is_v5:
                self._end()
        self._send(packet)

    def _answer_stored(self, session: Session, packet: Packet) -> None:
        self._broker.when_change_stored(session, lambda: self._send(packet))

    def _send(self, packet: Packet) -> None:
        if self.is_open:
            self.down.append(packet)

    def _end(self) -> None:
        """Close, because 3.1.1 has no word for a refusal that may not last."""
        if self.is_open:
            self.ending = "refused"
            assert self.session is not None
            self._broker.disconnect(self.session, self, is_graceful=False)
