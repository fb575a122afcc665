"""Clients that behave as real ones do: they remember what MQTT makes them remember, whatever happens.

A device keeps what it sends until it is acknowledged and sends it again after every interruption; at QoS 2
it remembers what it has received until it is told to forget it. `received` is what its application saw.
"""

from collections import deque

from msgspec import Struct

from tests.core.wire import Kind, Line, Packet
from tests.support.broker import Stage

LAST_NUMBER = 20
"""Devices have few packet identifiers, so that they use each of them often."""


class Message(Struct):
    """One message of a device, and what became of it."""

    sender: str
    serial: int
    topic: str
    qos: int
    payload: bytes
    is_released: bool = False
    """It was received at QoS 2; only its number is still in use."""
    is_accepted: bool | None = None
    """What the sender was told; None while it knows nothing."""
    was_refused: bool = False
    """The server said no at least once, whether the sender heard that or not."""


class Device:
    """One client, which outlives every connection and every server."""

    def __init__(self, name: str, *, window: int = 100, is_v5: bool = True, expiry: float = 3_600.0) -> None:
        self.name = name
        self.line: Line | None = None
        self.up: deque[Packet] = deque()  # sent, and not yet arrived
        self.sent: list[Message] = []
        self.received: list[Packet] = []
        self.wanted: dict[str, int] = {}  # filters that were granted, and at which QoS
        self.is_greeted = False
        self.has_session = False
        self._window = window
        self._is_v5 = is_v5
        self.expiry = expiry
        self._unacknowledged: dict[int, Message] = {}
        self._held: set[int] = set()  # numbers at QoS 2 that the server has not released
        self._asked: dict[int, Packet] = {}
        self._number = 0

    @property
    def is_connected(self) -> bool:
        return self.line is not None and self.line.is_open

    @property
    def is_quiet(self) -> bool:
        """It has nothing to say, nothing to read and nothing to wait for."""
        is_waiting = self._unacknowledged or self._held or self._asked or self.up
        return self.is_greeted and self.line is not None and not (is_waiting or self.line.down)

    # Coming and going

    def connect(self, stage: Stage, *, clean: bool = False) -> None:
        """Connect; a clean start begins a new session."""
        self.lose()
        if clean:
            self.has_session = False
            self._forget_session()
        self.line = Line(
            stage, self.name, clean=clean, expiry=self.expiry, window=self._window, is_v5=self._is_v5
        )

    def _forget_session(self) -> None:
        self.wanted.clear()
        self._held.clear()
        self._unacknowledged.clear()

    def lose(self) -> None:
        """The connection is gone, and what was under way with it."""
        if self.line is not None:
            for packet in self.line.down:
                self._note_refusal(packet)
            self.line.cut()
        self.line, self.is_greeted = None, False
        self.up.clear()
        self._asked.clear()
        if not self.expiry:
            self.has_session = False
            self._forget_session()

    def leave(self) -> None:
        """Say goodbye."""
        if self.line is not None:
            self.line.goodbye()
        self.lose()

    def read_last_words(self, count: int) -> None:
        """The server is gone, but some of what it had sent is here: take it, and answer nobody."""
        for _ in range(min(count, len(self.line.down) if self.line is not None else 0)):
            assert self.line is not None
            self._on_packet(self.line.down.popleft())

    # Talking

    def publish(self, topic: str, qos: int) -> Message | None:
        """Send a message, if there is a number for it."""
        if not self.is_greeted or len(self._unacknowledged) >= LAST_NUMBER // 2:
            return None
        serial = len(self.sent) + 1
        message = Message(self.name, serial, topic, qos, f"{self.name}-{serial}".encode())
        self.sent.append(message)
        number = self._next_number()
        self._unacknowledged[number] = message
        self._send(number, message)
        return message

    def subscribe(self, filter: str, qos: int) -> None:
        """Ask for a filter; it is `wanted` when it was granted."""
        self._ask(Packet(Kind.SUBSCRIBE, self._next_number(), qos=qos, topic=filter))

    def unsubscribe(self, filter: str) -> None:
        """Want a filter no more, from now on."""
        self.wanted.pop(filter, None)
        self._ask(Packet(Kind.UNSUBSCRIBE, self._next_number(), topic=filter))

    def _ask(self, packet: Packet) -> None:
        if self.is_greeted and len(self._asked) < LAST_NUMBER // 4:
            self._asked[packet.number] = packet
            self.up.append(packet)

    def _next_number(self) -> int:
        while True:
            self._number = self._number % LAST_NUMBER + 1
            if self._number not in self._unacknowledged and self._number not in self._asked:
                return self._number

    def _send(self, number: int, message: Message) -> None:
        if message.is_released:
            packet = Packet(Kind.PUBREL, number)
        else:
            packet = Packet(
                Kind.PUBLISH, number, qos=message.qos, topic=message.topic, payload=message.payload
            )
        self.up.append(packet)

    def deliver(self, count: int) -> None:
        """Let some of what was sent arrive."""
        for _ in range(count):
            if self.line is None or not self.line.is_open or not self.up:
                return
            self.line.take(self.up.popleft())

    # Listening

    def read(self, count: int) -> None:
        """Read some of what has arrived, and answer it."""
        for _ in range(count):
            if self.line is None or not self.line.down:
                return
            self.up += self._on_packet(self.line.read())

    def _on_packet(self, packet: Packet) -> list[Packet]:
        number = packet.number
        if packet.kind is Kind.CONNACK:
            self._on_connack(packet.is_ok)
        elif packet.kind is Kind.PUBLISH:
            return self._on_publish(packet)
        elif packet.kind is Kind.PUBREL:
            self._held.discard(number)
            return [Packet(Kind.PUBCOMP, number)]
        elif packet.kind in (Kind.SUBACK, Kind.UNSUBACK):
            self._on_granted(self._asked.pop(number), packet.is_ok)
        else:
            return self._on_answer(packet)
        return []

    def _on_granted(self, asked: Packet, is_ok: bool) -> None:
        """An answer to a request; others of the same filter may be under way."""
        is_last = all(asked.topic != other.topic for other in self._asked.values())
        if asked.kind is Kind.SUBSCRIBE and is_ok and is_last:
            self.wanted[asked.topic] = asked.qos

    def _on_connack(self, is_known: bool) -> None:
        assert is_known or not self.has_session, f"the session of {self.name} is lost"
        self.is_greeted = True
        self.has_session = self.expiry > 0
        for number, message in self._unacknowledged.items():
            self._send(number, message)

    def _on_publish(self, packet: Packet) -> list[Packet]:
        if packet.qos == 2:
            if packet.number not in self._held:
                self._held.add(packet.number)
                self.received.append(packet)
            return [Packet(Kind.PUBREC, packet.number)]
        self.received.append(packet)
        return [Packet(Kind.PUBACK, packet.number)] if packet.qos else []

    def _note_refusal(self, packet: Packet) -> None:
        if packet.kind in (Kind.PUBACK, Kind.PUBREC) and not packet.is_ok:
            self._unacknowledged[packet.number].was_refused = True

    def _on_answer(self, packet: Packet) -> list[Packet]:
        message = self._unacknowledged.get(packet.number)
        if message is None:
            assert packet.kind is Kind.PUBCOMP, f"{self.name} is answered what it did not ask"
            return []
        self._note_refusal(packet)
        if message.is_accepted is None:
            message.is_accepted = packet.is_ok
        if packet.kind is Kind.PUBREC and packet.is_ok:
            message.is_released = True
            return [Packet(Kind.PUBREL, packet.number)]
        del self._unacknowledged[packet.number]
        return []
