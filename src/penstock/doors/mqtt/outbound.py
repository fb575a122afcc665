"""The way out of one connection: deliveries, redelivery, and control packets before both.

Deliveries arrive as joined bytes at the tick's flush. Control packets pass everything that waits in the
outbox, and a publisher that is its own subscriber gets acknowledgements before its messages. After a
reconnect, what was in flight leaves first: with its packet identifiers, marked as duplicates, in its original
order (MQTT-4.4.0-1), and not more at a time than socket and client accept.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.delivery.inflight import Inflight, Pending
from penstock.core.sessions.session import Session
from penstock.model import Reason
from penstock.net.read_pause import NO_PAUSE, UNREAD_RESPONSES, ReadPause
from penstock.net.transport import CLOSED_TRANSPORT
from penstock.wire.mqtt.aliases import AliasWriter
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import PubRel, Version

if TYPE_CHECKING:
    from penstock.doors.mqtt.door import MqttDoor

CONTROL_LIMIT_BYTES = 1024 * 1024
"""Bytes of responses that a peer may leave unread before it is not read from."""
CHUNK_BYTES = 64 * 1024
"""Bytes of redelivered messages in one write, about."""


class Outbound:
    """Everything that is written to one transport, in its order.

    It refers to the transport and not to the connection, and after `close` to neither.
    """

    __slots__ = (
        "_aliases",
        "_broker",
        "_clock",
        "_counters",
        "_is_full",
        "_is_stopped",
        "_read_pause",
        "_transport",
        "_withheld",
        "redelivery",
    )

    def __init__(self, door: "MqttDoor", transport: asyncio.Transport, read_pause: ReadPause) -> None:
        """Args:
        read_pause: paused while the client leaves too many responses unread.
        """
        self._broker = door.broker
        self._clock = door.clock
        self._counters = door.counters
        self._transport = transport
        self._read_pause = read_pause
        self._aliases: AliasWriter | None = None
        self.redelivery: Redelivery | None = None  # of what was in flight, until the last of it is sent
        self._withheld: list[bytes] | None = None  # deliveries behind the acknowledgements of this turn
        self._is_full = False  # the socket takes no more
        self._is_stopped = False

    def use_aliases(self, count: int, limit_bytes: int) -> None:
        """Write this many topics as aliases, in packets of at most this many bytes."""
        self._aliases = AliasWriter(count, limit_bytes)

    # Deliveries

    def write(self, data: bytes) -> None:
        """Write deliveries, behind acknowledgements of this turn that were announced."""
        if self._withheld is not None:
            self._withheld.append(data)
            return
        if self._aliases is not None:
            data = self._aliases.rewrite(data)
        self._counters.bytes_sent += len(data)
        self._transport.write(data)

    def acknowledge_first(self) -> None:
        """Withhold deliveries until the acknowledgements of this turn are written.

        A publisher that is its own subscriber gets the acknowledgement first, as other brokers do it. Those
        that wait for a commit are not waited for. Call it after they were added, because callbacks of a turn
        run in order.
        """
        if self._withheld is None:
            self._withheld = []
            self._broker.when_committed(None, self.write_withheld)

    def write_withheld(self, failure: Exception | None = None) -> None:
        """Write withheld deliveries, whatever the acknowledgements do."""
        withheld, self._withheld = self._withheld, None
        if withheld:
            self.write(b"".join(withheld))

    # Control packets

    def send(self, data: bytes) -> None:
        """Write bytes now, before withheld deliveries."""
        withheld, self._withheld = self._withheld, None
        self.write(data)
        self._withheld = withheld

    def control(self, data: bytes, count: int = 1) -> None:
        """Write control packets: at once, past everything that waits in the outbox."""
        if self._is_stopped:
            return
        self._counters.control_packets_sent += count
        self.send(data)
        if self._transport.get_write_buffer_size() > CONTROL_LIMIT_BYTES:
            self._read_pause.pause(UNREAD_RESPONSES)

    # Flow control

    def pause(self, session: Session | None) -> None:
        """The socket is full."""
        self._is_full = True
        if session is not None:
            self._broker.pause(session)

    def resume(self, session: Session | None) -> None:
        """The socket has room again."""
        self._is_full = False
        self._read_pause.resume(UNREAD_RESPONSES)
        if session is not None:
            self._continue(session)

    def begin(self, session: Session, version: Version) -> None:
        """Send again what was on its way, then let core send what it has."""
        if session.inflight:
            may_read = partial(self._broker.access.may_read, session.identity)
            self.redelivery = Redelivery(session.inflight, version, may_read)
            self._broker.pause(session)  # nothing new before the last of it
            self._continue(session)
        else:
            self._broker.resume(session)

    def on_acknowledged(self, session: Session) -> None:
        """The client has room for one more of what is sent again."""
        if self.redelivery is not None and not self._is_full:
            self._continue(session)

    def _continue(self, session: Session) -> None:
        """The way out is free."""
        redelivery, broker = self.redelivery, self._broker
        if redelivery is None:
            broker.unpause(session)
            return
        while redelivery and not self._is_full:
            data = redelivery.take(self._clock.monotonic())
            if not data:
                break
            self.send(data)
        for pending, reason in redelivery.given_up:
            broker.give_up(session, pending.run, reason)
        redelivery.given_up.clear()
        if not redelivery and not self._is_full:
            self.redelivery = None
            broker.unpause(session)
            broker.resume(session)

    # The end

    def stop(self) -> None:
        """Write no more control packets: the last one is written."""
        self._is_stopped = True

    def close(self) -> None:
        """The socket is closed: drop it. Idempotent."""
        self._transport, self._read_pause = CLOSED_TRANSPORT, NO_PAUSE


class Redelivery:
    """In-flight messages of a session that have not been sent on this connection yet; false without any.

    New messages wait for the last of them.
    """

    __slots__ = ("_inflight", "_may_read", "_numbers", "_version", "given_up")

    def __init__(self, inflight: Inflight, version: Version, may_read: Callable[[str], bool]) -> None:
        self._inflight = inflight
        self._numbers = deque(inflight.entries)
        self._version = version
        self._may_read = may_read
        self.given_up: list[tuple[Pending, Reason]] = []

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def take(self, now: float) -> bytes:
        """The next packets, about a chunk of them; nothing while the client's window is full."""
        parts: list[bytes] = []
        size = 0
        while self._numbers and size < CHUNK_BYTES:
            number = self._numbers[0]
            pending = self._inflight.entries.get(number, self)
            if isinstance(pending, Pending) and not self._has_room:  # MQTT-3.3.4-9
                break
            self._numbers.popleft()
            if isinstance(pending, Pending) and not self._may_read(pending.run.topic):
                self._inflight.give_up(number, pending)  # the rules have changed meanwhile
                self.given_up.append((pending, Reason.NOT_AUTHORIZED))
                pending = self._inflight.entries.get(number, self)
            if pending is None:
                parts.append(encode_packet(PubRel(number), self._version))
            elif isinstance(pending, Pending):
                parts += self._encode(number, pending, now)
            size += len(parts[-1]) if parts else 0
        return b"".join(parts)

    @property
    def _has_room(self) -> bool:
        """The client takes one more; what waits here is not on its way on this connection."""
        return len(self._inflight) - len(self._numbers) < self._inflight.limit

    def _encode(self, number: int, pending: Pending, now: float) -> list[bytes]:
        frames = pending.encoding.frames((pending.run,), now, again=True)
        if not frames:  # the client takes smaller packets than before
            self._inflight.complete(number)
            self.given_up.append((pending, Reason.PACKET_TOO_LARGE))
        return [piece for before, after, _ in frames for piece in (before, number.to_bytes(2, "big"), after)]
