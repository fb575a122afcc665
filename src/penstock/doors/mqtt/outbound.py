"""Outbound side of one MQTT connection: deliveries, responses, redeliveries, and limits for each.

Deliveries come joined from core. Responses are written at once and never wait behind an outbox; but a
client that does not read them, or has too many waiting for a commit, is not read from. The inbound side is
`connection.py`.
"""

import asyncio
from abc import abstractmethod
from functools import partial, reduce
from typing import TYPE_CHECKING

from penstock.core.delivery.reencoding import PendingEncoding
from penstock.core.ports.connection import Encoding
from penstock.core.sessions.session import Session
from penstock.doors.mqtt.encodings import MqttEncoding, encoding_of
from penstock.doors.mqtt.reason_codes import Answer, encode_within
from penstock.doors.mqtt.redelivery import Redelivery
from penstock.net.rate_limit import TokenBucket
from penstock.net.read_pause import BACKPRESSURE, COMMIT, RATE_LIMIT, UNREAD_RESPONSES, ReadPause
from penstock.wire.mqtt.aliases import AliasWriter
from penstock.wire.mqtt.packets import Version

if TYPE_CHECKING:
    from penstock.doors.mqtt.door import MqttDoor

CONTROL_LIMIT_BYTES = 1024 * 1024
"""Bytes of responses that a peer may leave unread before it is not read from."""
UNSTORED_LIMIT = 1_000
"""Responses that may wait for a commit before the client is not read from."""


class Outbound(asyncio.BufferedProtocol):
    """Writes of one socket; the base class of a connection."""

    __slots__ = (
        "_again",
        "_aliases",
        "_is_full",
        "_last_seen",
        "_loop",
        "_session",
        "_transport",
        "_uncommitted_acks",
        "bucket",
        "door",
        "is_closing",
        "is_held",
        "limit_bytes",
        "read_pause",
        "version",
    )

    _transport: asyncio.Transport
    read_pause: ReadPause

    def __init__(self, door: "MqttDoor") -> None:
        self.door = door
        self._loop = door.loop
        self._session: Session | None = None
        self._aliases: AliasWriter | None = None
        self._again: Redelivery | None = None
        self._last_seen = 0.0
        self._uncommitted_acks = 0  # responses that wait for a commit
        self._is_full = self.is_closing = self.is_held = False
        self.bucket: TokenBucket | None = None
        self.limit_bytes = 0
        self.version = Version.V311

    # Deliveries

    def write(self, data: bytes) -> None:
        if self._aliases is not None:
            data = self._aliases.rewrite(data)
        self.door.counters.bytes_sent += len(data)
        self._transport.write(data)

    def pause_writing(self) -> None:
        self._is_full = True
        if self._session is not None:
            self.door.broker.pause(self._session)

    def resume_writing(self) -> None:
        self._is_full = False
        self.read_pause.resume(UNREAD_RESPONSES)
        if self._session is not None:
            self._go_on(self._session)

    def begin(self, session: Session) -> None:
        """Send again what was on its way, then let core send what it has."""
        if session.inflight:
            may_read = partial(self.door.broker.access.may_read, session.identity)
            self._again = Redelivery(session.inflight, self.version, may_read)
            self.door.broker.pause(session)  # nothing new before the last of it
            self._go_on(session)
        else:
            self.door.broker.resume(session)

    def _go_on(self, session: Session) -> None:
        """The way out is free."""
        again = self._again
        if again is None:
            self.door.broker.unpause(session)
            return
        while again and not self._is_full:
            data = again.take(self.door.clock.monotonic())
            if not data:
                break
            self.write(data)
        for pending, reason in again.given_up:
            self.door.broker.give_up(session, pending.run, reason)
        again.given_up.clear()
        if not again and not self._is_full:
            self._again = None
            self.door.broker.unpause(session)
            self.door.broker.resume(session)

    def on_acknowledged(self, session: Session) -> None:
        """The client has room for one more of what is sent again."""
        if self._again is not None and not self._is_full:
            self._go_on(session)

    def reform(self, form: Encoding) -> Encoding:
        """A form of this session's last connection, or of none since the server started, for this one."""
        if isinstance(form, PendingEncoding):
            made = [
                encoding_of(options, self.version, self.limit_bytes, self.door.marks)
                for options in form.wishes
            ]
            merged = reduce(MqttEncoding.merge, made)
            return merged.as_retained() if form.is_retained else merged
        assert isinstance(form, MqttEncoding)
        return form.on_wire(self.version, self.limit_bytes)

    # Responses

    def answer(self, packet: Answer) -> None:
        """Write the response to a request."""
        self.control(self.encode(packet))

    def answer_stored(self, packet: Answer, session: Session) -> None:
        """Write the response to a request when what was done for it outlives the server."""
        self._uncommitted_acks += 1
        self.door.broker.when_change_stored(session, partial(self._on_stored, packet))
        if self._uncommitted_acks > UNSTORED_LIMIT:
            self.read_pause.pause(COMMIT)

    def _on_stored(self, packet: Answer) -> None:
        self._uncommitted_acks -= 1
        if not self.is_closing:
            self.answer(packet)
            self.read_pause.resume(COMMIT)

    def encode(self, packet: Answer) -> bytes:
        """The bytes of a response; if the client does not take this many, the connection ends instead."""
        data = encode_within(packet, self.version, self.limit_bytes)
        if data is None:  # MQTT-3.1.2-24
            self.on_too_large()
        return data or b""

    @abstractmethod
    def on_too_large(self) -> None:
        """A response is larger than the client takes."""

    def control(self, data: bytes, count: int = 1) -> None:
        """Write control packets: at once, past everything that waits in the outbox."""
        if self.is_closing:
            return
        self.door.counters.control_packets_sent += count
        self.write(data)
        if self._transport.get_write_buffer_size() > CONTROL_LIMIT_BYTES:
            self.read_pause.pause(UNREAD_RESPONSES)

    # Holding back

    def hold(self, *, is_unacknowledged: bool) -> None:
        self.is_held = True
        if is_unacknowledged:
            self.read_pause.pause(BACKPRESSURE)

    def charge(self, count: int) -> None:
        """Count messages that cannot be refused against the client's rate; it waits as long as that takes."""
        assert self.bucket is not None
        self.bucket.charge(count, self.door.clock.monotonic())
        if not self.read_pause.is_paused_by(RATE_LIMIT):
            self._throttle()

    def _throttle(self) -> None:
        """Read nothing for as long as the client is ahead of its rate, if it still has one to keep."""
        wait_s = 0.0 if self.bucket is None else self.bucket.wait_s(self.door.clock.monotonic())
        self._last_seen = self._loop.time()
        if wait_s > 0:
            self.read_pause.pause(RATE_LIMIT)
            self._loop.call_later(wait_s, self._throttle)
        else:
            self.read_pause.resume(RATE_LIMIT)

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._transport.abort()
