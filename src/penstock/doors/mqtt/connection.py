"""One MQTT connection: packets in, calls to core, packets out.

It is an asyncio protocol and core's sink at once. Reading and writing never wait: a chunk is taken
whole, deliveries arrive as joined bytes at the tick's flush, acknowledgements follow in the same turn.
Control packets are written at once and so never wait behind an outbox. What the packets mean is in
`handlers.py`, but for publishes, which come in runs.
"""

import asyncio
import sys
from collections.abc import Iterable
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, cast

from penstock.core.away import AwayForm
from penstock.core.ports import Form, Ticket
from penstock.core.sessions import Ending, Session
from penstock.doors.mqtt.answers import ENDINGS, ends_connection, reason_of
from penstock.doors.mqtt.forms import MqttForm, form_of
from penstock.doors.mqtt.handlers import HANDLERS, on_unexpected
from penstock.doors.mqtt.resending import Resending
from penstock.errors import PenstockError
from penstock.model import Reason, Run
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import Connect, Disconnect, Packet, PubAck, PubRec, Version
from penstock.wire.mqtt.reader import RunReader
from penstock.wire.mqtt.reasons import MqttWireError, ReasonCode

if TYPE_CHECKING:
    from penstock.doors.mqtt.door import MqttDoor

CLOSING_TIMEOUT_S = 5.0
"""How long the last bytes may take to leave a connection that is being closed."""
CONTROL_LIMIT_BYTES = 1024 * 1024
"""How many bytes of answers a peer may leave unread before we read no more from it."""


class Connection(asyncio.BufferedProtocol):
    """What stands between one socket and core."""

    __slots__ = (
        "_acks",
        "_again",
        "_deadline",
        "_is_closing",
        "_is_full",
        "_is_held",
        "_is_reading",
        "_keep_alive_s",
        "_last_seen",
        "_loop",
        "_reader",
        "_session",
        "_transport",
        "_unanswered",
        "_waiting",
        "_window",
        "door",
        "limit_bytes",
        "notes",
        "peer",
        "version",
    )

    _transport: asyncio.Transport

    def __init__(self, door: "MqttDoor") -> None:
        settings = door.settings
        self.door = door
        self._loop = door.loop
        self._reader = RunReader(
            door.limit_bytes, door.names, settings.topic_alias_maximum, settings.max_control_bytes
        )
        self._session: Session | None = None
        self._acks: list[bytes] | None = None
        self._unanswered = 0  # of `_acks`, those that end their exchange
        self._window = settings.receive_maximum
        self._waiting: list[Packet | Run] | None = None  # read while the password is still checked
        self._again: Resending | None = None
        self._last_seen = 0.0
        self._deadline = 0.0  # for CONNECT, and for the last bytes
        self._keep_alive_s = 0.0
        self._is_closing = self._is_held = self._is_full = False
        self._is_reading = True
        self.limit_bytes = 0
        self.notes = 0
        self.version = Version.V311
        self.peer = ""

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else ""
        self._transport.set_write_buffer_limits(high=self.door.settings.write_buffer_bytes)
        self._last_seen = self._loop.time()
        self._deadline = self._last_seen + self.door.settings.connect_timeout_s
        self.door.on_open(self, self._deadline)

    def get_buffer(self, size_hint: int) -> memoryview:
        return self.door.large_buffer if self._reader.is_amid_large else self.door.buffer

    def buffer_updated(self, size: int) -> None:
        data = bytes(self.door.large_buffer[:size])
        self._last_seen = now = self._loop.time()
        self.door.counters.bytes_received += size
        tick = self.door.tick
        is_alone = tick.open_alone(now)
        try:
            items = self._reader.feed(data)
            if self._waiting is not None:
                self._waiting += items
            elif items:
                self._take(items)
            if self._reader.error is not None and self._waiting is None:
                self._on_wire_error(self._reader.error)
        finally:  # a turn that was begun must end, or everyone waits for ever
            if is_alone:
                tick.flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        session, self._session = self._session, None
        if session is not None:
            self.door.broker.disconnect(session, self, is_graceful=False)
        self.door.on_lost(self)

    def pause_writing(self) -> None:
        self._is_full = True
        if self._session is not None:
            self.door.broker.pause(self._session)

    def resume_writing(self) -> None:
        self._is_full = False
        self._set_reading()
        if self._session is not None:
            self._go_on(self._session)

    def check_deadline(self, now: float) -> float | None:
        """Keep alive, the time for CONNECT, and the time for the last bytes after a close."""
        if self not in self.door.connections:
            return None
        if self._is_closing or self._session is None:
            if self._waiting is not None:  # it has said CONNECT; the check of its password is ours
                return now + self.door.settings.connect_timeout_s
            if now < self._deadline:
                return self._deadline
            self._transport.abort()
            return None
        if not self._keep_alive_s:
            return None
        if self._is_held:
            return now + self._keep_alive_s  # we are the ones who do not listen: its clock stands still
        if now < self._last_seen + self._keep_alive_s:
            return self._last_seen + self._keep_alive_s
        self.door.note("keep alive timeout", self)
        self.end(ReasonCode.KEEP_ALIVE_TIMEOUT)
        return self._deadline

    # Core's sink

    def write(self, data: bytes) -> None:
        self.door.counters.bytes_sent += len(data)
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
        session, self._session = self._session, None
        ending = Ending(reason)
        self.end(ENDINGS[ending], is_heard=ending is Ending.SHUTTING_DOWN)
        if session is not None and session.sink is self:
            # Core is in the middle of a delivery; it can let go of the session when that is done.
            self._loop.call_soon(partial(self.door.broker.disconnect, session, self, is_graceful=False))

    # Packets

    def _take(self, items: list[Packet | Run]) -> None:
        """Act on what was read, in order."""
        session = self._session
        if session is None:
            if not self._is_closing:
                self._on_first(items)
        elif self._reader.is_plain:
            self.door.counters.packets_received += len(items)
            self.door.broker.publish_all(items, session, self._on_refused)  # type: ignore[arg-type]
        else:
            self._take_each(items, session)

    def _take_each(self, items: list[Packet | Run], session: Session) -> None:
        self.door.counters.packets_received += len(items)
        for qos, group in groupby(items, _qos_of):
            if qos == 0:
                self.door.broker.publish_all(cast("list[Run]", list(group)), session, self._on_refused)
            elif qos == 1:
                self._on_level_one(cast("list[Run]", list(group)), session)
            else:
                self._take_packets(group, session)
            if self._is_closing:
                return

    def _take_packets(self, items: Iterable[Packet | Run], session: Session) -> None:
        for item in items:
            if type(item) is Run:
                self._on_level_two(item, session)
            else:
                try:
                    HANDLERS.get(type(item), on_unexpected)(self, item, session)
                except MqttWireError as error:
                    self._on_wire_error(error)
            if self._is_closing:
                return

    def _on_first(self, items: list[Packet | Run]) -> None:
        """The first packet must be CONNECT; the rest waits until it is answered."""
        packet = items[0]
        if not isinstance(packet, Connect):
            self._is_closing = True
            self._transport.abort()  # MQTT-3.1.0-1
            return
        self.version = packet.version
        self._waiting = items[1:]
        self.door.admit(self, packet)

    def accept(self, session: Session, connack: bytes, keep_alive_s: float) -> None:
        """The door let the client in: answer, send again what was on its way, go on."""
        self._session = session
        # What the client has not released yet was sent on an earlier connection and is no part of its quota.
        self._window = self.door.settings.receive_maximum + len(session.received or ())
        self._keep_alive_s = keep_alive_s
        if keep_alive_s:
            self.door.watch(self, self._last_seen + keep_alive_s)
        self.write(connack)
        if session.inflight:
            self._again = Resending(session.inflight, self.version)
            self.door.broker.pause(session)  # nothing new before the last of it
            self._go_on(session)
        else:
            self.door.broker.resume(session)
        waiting, self._waiting = self._waiting, None
        self._set_reading()
        if waiting:
            self._take_each(waiting, session)
        if self._reader.error is not None:
            self._on_wire_error(self._reader.error)

    def _go_on(self, session: Session) -> None:
        """The way out is free: send what is on its way again, then let core send what it has."""
        again = self._again
        if again is None:
            self.door.broker.unpause(session)
            return
        while again and not self._is_full:
            data = again.take(self.door.clock.monotonic())
            if not data:
                break
            self.write(data)
        for pending in again.too_large:
            self.door.broker.ledger.add(pending.run, session.client_id, Reason.PACKET_TOO_LARGE)
        again.too_large.clear()
        if not again and not self._is_full:
            self._again = None
            self.door.broker.unpause(session)
            self.door.broker.resume(session)

    def reform(self, form: Form) -> Form:
        """A form of this session's last connection, or of none since the server started, for this one."""
        if isinstance(form, AwayForm):
            return form_of(form.options, self.version, self.limit_bytes)
        assert isinstance(form, MqttForm)
        return form.on_wire(self.version, self.limit_bytes)

    def on_acknowledged(self, session: Session) -> None:
        """The client has room for one more of what is sent again."""
        if self._again is not None and not self._is_full:
            self._go_on(session)

    # Publishes at QoS 1 and 2

    def _on_level_one(self, runs: list[Run], session: Session) -> None:
        allowed = self._room(session)
        taken = runs[:allowed]
        refused: dict[int, PenstockError] = {}
        ticket = self.door.broker.publish_all(
            taken, session, lambda run, error: refused.update({id(run): error})
        )
        acks = [b"\x40\x02" + run.packet_id.to_bytes(2, "big") for run in taken]
        for position, run in enumerate(taken) if refused else ():
            if id(run) in refused:
                acks[position] = self._refuse(run, PubAck, refused[id(run)])
        self._unanswered += len(acks)
        self._acknowledge(acks, ticket)
        if len(runs) > allowed:
            self.end(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)

    def _on_level_two(self, run: Run, session: Session) -> None:
        packet_id, received = run.packet_id, session.received
        if received is not None and packet_id in received:
            self._acknowledge([encode_packet(PubRec(packet_id), self.version)], None)  # MQTT-4.3.3-10
            return
        if not self._room(session):
            self.end(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
            return
        try:
            receipt = self.door.broker.publish(run, session)
        except PenstockError as error:
            self._unanswered += 1
            self._acknowledge([self._refuse(run, PubRec, error)], None)
            return
        if received is None:
            received = session.received = set()
        received.add(packet_id)
        self._acknowledge([b"\x50\x02" + packet_id.to_bytes(2, "big")], receipt.ticket)

    def _room(self, session: Session) -> int:
        """How many more publishes at QoS 1 and 2 the client may send before it has our answers."""
        if self.version is not Version.V5:
            return sys.maxsize
        return max(self._window - self._unanswered - len(session.received or ()), 0)

    def _refuse(self, run: Run, kind: type[PubAck] | type[PubRec], error: PenstockError) -> bytes:
        """The answer to a publish that was not accepted; some errors end the connection instead."""
        self._on_refused(run, error)
        if ends_connection(error, self.version):
            self.end(reason_of(error))
        # MQTT 3.1.1 has no word for a refusal: the message is acknowledged and not published.
        return encode_packet(kind(run.packet_id, reason_of(error)), self.version)

    def _acknowledge(self, acks: list[bytes], ticket: Ticket | None) -> None:
        """Answer when what was published may be relied on."""
        if self._is_closing:
            return
        if self._acks is None:
            self._acks = []
        if not self._acks:
            self.door.broker.when_settled(ticket, self._write_acks)
        self._acks += acks
        if self._is_held and len(self._acks) >= self._window:
            self._set_reading(wanted=False)  # 3.1.1 has no window of its own

    def _write_acks(self, failure: BaseException | None = None) -> None:
        if failure is not None:  # what could not be stored is not acknowledged
            self.end(ReasonCode.QUOTA_EXCEEDED)
        if self._acks and not self._is_held and not self._is_closing:
            acks, self._acks = self._acks, []
            self._unanswered = 0
            self.control(b"".join(acks))

    def _on_refused(self, run: Run, error: PenstockError) -> None:
        if self._is_closing:
            return
        self.door.on_refused(self, run, error)
        if not run.packet_id and ends_connection(error, Version.V5):
            self._loop.call_soon(self.end, reason_of(error))  # core has more of this chunk in hand

    # Ending

    @property
    def client_id(self) -> str:
        """Who is connected; empty if nobody is."""
        return self._session.client_id if self._session is not None else ""

    @property
    def is_stranger(self) -> bool:
        """Not let in yet, and not turned away either."""
        return self._session is None and not self._is_closing

    def _on_wire_error(self, error: MqttWireError) -> None:
        if self._is_closing:
            return
        self.door.on_wire_error(self, error)
        if self._session is None:
            self.version = self._reader.version
            self.door.refuse_bytes(self, error, is_greeted=self._reader.is_greeted)
        else:
            self.end(error.reason)

    def turn_away(self, connack: bytes) -> None:
        """The door did not let the client in."""
        self._waiting = None
        if not self._is_closing:
            self.write(connack)
            self.leave(is_heard=True)

    def end(self, reason: ReasonCode, *, is_heard: bool = True) -> None:
        """Say why, as far as the client's version has words for it, and close."""
        if self._is_closing:
            return
        if self.version is Version.V5:
            self.write(encode_packet(Disconnect(reason), self.version))
        self.leave(is_heard=is_heard)

    def leave(
        self, *, is_graceful: bool = False, expiry: float | None = None, is_heard: bool = False
    ) -> None:
        """Let go of the session and close when everything written has left; abort if that takes too long.

        Args:
            is_heard: wait for the client to close, too. Closing while it still sends would reset the
                connection, and take with it what the client has not read yet.
        """
        session, self._session = self._session, None
        if is_heard:
            self._waiting = None
            self._is_held = False
            self._set_reading()
        self._is_closing = True
        self._reader.stop()
        if session is not None:
            self.door.broker.disconnect(session, self, is_graceful=is_graceful, expiry=expiry)
        if is_heard and not self._transport.is_closing():
            self._transport.write_eof()
        else:
            self._transport.close()
        self._deadline = self._loop.time() + CLOSING_TIMEOUT_S
        self.door.watch(self, self._deadline)

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._transport.abort()

    # Writing

    def answer(self, packet: Packet) -> None:
        """Write the answer to a request."""
        data = encode_packet(packet, self.version)
        if self.limit_bytes and len(data) > self.limit_bytes:
            self.end(ReasonCode.PACKET_TOO_LARGE)  # MQTT-3.1.2-24
        else:
            self.control(data)

    def control(self, data: bytes) -> None:
        """Write control packets: at once, past everything that waits in the outbox."""
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


def _qos_of(item: Packet | Run) -> int:
    """Which publishes can be taken together: those at QoS 0, and those at QoS 1; anything else by itself."""
    return item.shape.qos if type(item) is Run else -1
