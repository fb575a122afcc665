"""Lean MQTT connections for load: packets are encoded in batches and parsed in place.

`MqttClient` makes an object of every message, and so would be slower than the server that is measured.
"""

import asyncio
from array import array
from collections.abc import Callable
from struct import Struct as Layout
from time import monotonic_ns, time_ns

from msgspec import Struct

from penstock.client.errors import ConnectionLost, RequestRefused, describe_reason
from penstock.client.mqtt.stream import PacketStream
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import Disconnect, Request, Subscribe, Version
from penstock.wire.mqtt.primitives import encode_text, encode_varint, take_varint

STAMP = Layout(">4sIIQQ")
"""First bytes of each payload: mark, run, publisher, number, and time in ns since 1970."""
MARK = b"PSB1"
MAX_NUMBER = 1 << 30
"""Bound for numbers in payloads, which may come from anywhere."""
BATCH = 500
BATCH_BYTES = 1 << 18

PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 0x30, 0x40, 0x50, 0x62, 0x70
SUBACK, PINGRESP, DISCONNECT = 0x90, 0xD0, 0xE0
PINGREQ = b"\xc0\x00"
REFUSED = 0x80
GENERAL_REFUSAL = 0x87
"""Not authorized: the only reason why a 3.1.1 SUBACK refuses a valid filter."""


class Pulse:
    """Wakes all waiting tasks whenever an acknowledgement or a message has arrived."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def beat(self) -> None:
        """Wake all tasks that wait now."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        """Wait for the next beat."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future


class Connection:
    """One MQTT connection after its handshake."""

    def __init__(self, stream: PacketStream, pulse: Pulse) -> None:
        self._stream = stream
        self._pulse = pulse
        self._is_5 = stream.version is Version.V5
        self._pings = self._pongs = 0

    async def read(self) -> None:
        """Handle packets until the connection ends.

        Raises:
            ConnectionLost: the server has closed it.
            RequestRefused: the server has refused a publish or the subscription.
        """
        rest = b""
        while chunk := await self._stream.receive_bytes():
            data = rest + chunk if rest else chunk
            rest = data[self._parse(data) :]
            self._after_chunk()
            self._pulse.beat()
        raise ConnectionLost("the server closed the connection")

    def ping(self) -> None:
        """Keep the connection alive."""
        self._pings += 1
        self._stream.write_bytes(PINGREQ)

    async def close(self) -> None:
        """Disconnect."""
        self._stream.write_bytes(encode_packet(Disconnect(), self._stream.version))
        await self._stream.close()

    async def abort(self) -> None:
        """Close without waiting for unsent packets."""
        self._stream.abort()

    async def _flush(self) -> None:
        """Wait until the server has handled everything that was sent."""
        self.ping()
        while self._pongs < self._pings:
            await self._pulse.wait()

    def _parse(self, data: bytes) -> int:
        """Handle all whole packets; returns the position after the last one."""
        position, end = 0, len(data)
        while position + 2 <= end:
            size, body = data[position + 1], position + 2
            if size >= 0x80:
                found = take_varint(data, position + 1)
                if found is None:
                    break
                size, body = found
            stop = body + size
            if stop > end:
                break
            self._on_packet(data[position], data, body, stop)
            position = stop
        return position

    def _on_packet(self, first: int, data: bytes, body: int, stop: int) -> None:
        if first == PINGRESP:
            self._pongs += 1
        elif first == DISCONNECT:
            reason = data[body] if stop > body else 0
            raise ConnectionLost(f"the server disconnected: {describe_reason(reason)}", reason)

    def _after_chunk(self) -> None:
        """Do what is due after the packets of a chunk."""


class Load(Struct, frozen=True, kw_only=True):
    """Messages of one publisher."""

    run: int
    publisher: int
    topics: tuple[str, ...]
    messages: int
    size: int
    qos: int
    rate: float
    """Messages per second; 0 sends as fast as possible."""
    window: int
    """Messages in flight at most; 0 sets no limit."""


class Publisher(Connection):
    """Publishes numbered messages, in turn to each topic."""

    def __init__(
        self, stream: PacketStream, pulse: Pulse, load: Load, delivered: Callable[[], int] | None
    ) -> None:
        """Args:
        delivered: number of its messages that every subscriber has; None if there are no subscribers here.
        """
        super().__init__(stream, pulse)
        self.sent = self.acknowledged = 0
        self.ended_ns = 0
        self.latencies_ns = array("Q")
        """Of acknowledgements."""
        self._load = load
        self._delivered = delivered
        self._unacknowledged: dict[bytes, int] = {}
        self._next_id = 0
        self._replies: list[bytes] = []
        self._filler = bytes(load.size - STAMP.size)
        self._heads = [self._head(topic) for topic in load.topics]

    async def publish(self) -> None:
        """Send all messages, and wait until the server has handled them."""
        load, loop = self._load, asyncio.get_running_loop()
        most = max(1, min(BATCH, BATCH_BYTES // load.size))
        began, began_ns = loop.time(), time_ns()
        while self.sent < load.messages:
            count = min(most, load.messages - self.sent)
            if load.rate:
                due = int((loop.time() - began) * load.rate) + 1 - self.sent
                if due <= 0:
                    await asyncio.sleep(began + self.sent / load.rate - loop.time())
                    continue
                count = min(count, due)
            count = min(count, self._room(count))
            if count <= 0:
                await self._pulse.wait()
                continue
            self._stream.write_bytes(self._encode(count, began_ns))
            await self._stream.drain()
            await asyncio.sleep(0)  # readers have their turn also while the socket takes everything
        while self._unacknowledged:
            await self._pulse.wait()
        await self._flush()
        self.ended_ns = monotonic_ns()

    def _room(self, wanted: int) -> int:
        """Number of messages that may be sent now."""
        if not self._load.window:
            return min(wanted, 0xFFFF - len(self._unacknowledged)) if self._load.qos else wanted
        under_way = len(self._unacknowledged)
        if self._delivered is not None:
            under_way = max(under_way, self.sent - self._delivered())
        return self._load.window - under_way

    def _head(self, topic: str) -> bytes:
        """Everything of a packet before its identifier."""
        name, load = encode_text(topic), self._load
        size = len(name) + (2 if load.qos else 0) + self._is_5 + load.size
        return bytes((PUBLISH | load.qos << 1,)) + encode_varint(size) + name

    def _encode(self, count: int, began_ns: int) -> bytes:
        """Encode the next messages; with a rate, their stamps are the scheduled times."""
        load, heads, pack = self._load, self._heads, STAMP.pack
        no_properties = b"\0" if self._is_5 else b""
        now, parts = time_ns(), []
        for number in range(self.sent, self.sent + count):
            at = began_ns + int(number * 1_000_000_000 / load.rate) if load.rate else now
            parts.append(heads[number % len(heads)])
            if load.qos:
                parts.append(self._take_id(at))
            parts.append(no_properties)
            parts.append(pack(MARK, load.run, load.publisher, number, at))
            parts.append(self._filler)
        self.sent += count
        return b"".join(parts)

    def _take_id(self, at: int) -> bytes:
        while True:
            self._next_id = self._next_id % 0xFFFF + 1
            packet_id = self._next_id.to_bytes(2, "big")
            if packet_id not in self._unacknowledged:
                self._unacknowledged[packet_id] = at
                return packet_id

    def _on_packet(self, first: int, data: bytes, body: int, stop: int) -> None:
        if first not in (PUBACK, PUBREC, PUBCOMP):
            super()._on_packet(first, data, body, stop)
            return
        packet_id = data[body : body + 2]
        reason = data[body + 2] if stop - body > 2 else 0
        if reason >= REFUSED:
            text = f"the server refused {self._load.topics[0]!r}: {describe_reason(reason)}"
            raise RequestRefused(text, reason)
        if first == PUBREC:
            self._replies.append(bytes((PUBREL, 2)) + packet_id)
            return
        sent_ns = self._unacknowledged.pop(packet_id, None)
        if sent_ns is not None:
            self.acknowledged += 1
            self.latencies_ns.append(max(time_ns() - sent_ns, 0))

    def _after_chunk(self) -> None:
        if self._replies:
            self._stream.write_bytes(b"".join(self._replies))
            self._replies.clear()


class Received:
    """Messages of one publisher at one subscriber."""

    def __init__(self, topics: int) -> None:
        self.count = 0
        """Without duplicates."""
        self.seen = bytearray()
        self.newest = [-1] * topics
        """Highest number per topic."""


class Subscriber(Connection):
    """Counts messages, duplicates and messages out of order, and records latencies."""

    def __init__(
        self, stream: PacketStream, pulse: Pulse, *, run: int | None, topics: int, sample_every: int
    ) -> None:
        """Args:
        run: count messages of this run only; None counts those of any.
        topics: number of topics that a publisher uses in turn.
        sample_every: record the latency of every such message.
        """
        super().__init__(stream, pulse)
        self.received: dict[tuple[int, int], Received] = {}
        """By run and publisher."""
        self.duplicates = self.out_of_order = self.foreign = 0
        self.bytes = 0
        self.began_ns = self.ended_ns = 0
        self.latencies_ns = array("Q")
        self._run = run
        self._topics = topics
        self._sample_every = sample_every
        self._filter = ""
        self._is_subscribed = False
        self._replies: list[bytes] = []
        self._now_ns = 0

    @property
    def count(self) -> int:
        """Messages received, without duplicates."""
        return sum(received.count for received in self.received.values())

    def count_of(self, run: int, publisher: int) -> int:
        """Messages received of one publisher, without duplicates."""
        received = self.received.get((run, publisher))
        return 0 if received is None else received.count

    async def subscribe(self, filter: str, qos: int) -> None:
        """Subscribe, and wait for the acknowledgement; `read` has to run meanwhile."""
        self._filter = filter
        packet = Subscribe(1, (Request(filter, qos=qos),))
        self._stream.write_bytes(encode_packet(packet, self._stream.version))
        while not self._is_subscribed:
            await self._pulse.wait()

    def _parse(self, data: bytes) -> int:
        self._now_ns = time_ns()
        return super()._parse(data)

    def _on_packet(self, first: int, data: bytes, body: int, stop: int) -> None:
        if first & 0xF0 == PUBLISH:
            self._on_publish(first >> 1 & 3, data, body, stop)
        elif first == PUBREL:
            self._replies.append(bytes((PUBCOMP, 2)) + data[body : body + 2])
        elif first == SUBACK:
            reason = data[stop - 1]
            if reason >= REFUSED:
                reason = reason if self._is_5 else GENERAL_REFUSAL
                text = f"the server refused to subscribe to {self._filter!r}: {describe_reason(reason)}"
                raise RequestRefused(text, reason)
            self._is_subscribed = True
        else:
            super()._on_packet(first, data, body, stop)

    def _on_publish(self, qos: int, data: bytes, body: int, stop: int) -> None:
        at = body + 2 + (data[body] << 8 | data[body + 1])
        if qos:
            self._replies.append(bytes((PUBACK if qos == 1 else PUBREC, 2)) + data[at : at + 2])
            at += 2
        if self._is_5:
            found = take_varint(data, at)
            at = stop if found is None else sum(found)
        if stop - at < STAMP.size:
            self.foreign += 1
            return
        mark, run, publisher, number, sent_ns = STAMP.unpack_from(data, at)
        if mark != MARK or number >= MAX_NUMBER or (self._run is not None and run != self._run):
            self.foreign += 1
            return
        self.bytes += stop - at
        self._count(run, publisher, number)
        if number % self._sample_every == 0:
            self.latencies_ns.append(max(self._now_ns - sent_ns, 0))

    def _count(self, run: int, publisher: int, number: int) -> None:
        received = self.received.get((run, publisher))
        if received is None:
            received = self.received[run, publisher] = Received(self._topics)
        seen = received.seen
        if number >= len(seen):
            seen.extend(bytes(max(number + 1, 2 * len(seen)) - len(seen)))
        if seen[number]:
            self.duplicates += 1
            return
        seen[number] = 1
        received.count += 1
        topic = number % self._topics
        if number < received.newest[topic]:
            self.out_of_order += 1
        else:
            received.newest[topic] = number

    def _after_chunk(self) -> None:
        if self._replies:
            self._stream.write_bytes(b"".join(self._replies))
            self._replies.clear()
        if self.received:
            self.ended_ns = monotonic_ns()
            self.began_ns = self.began_ns or self.ended_ns
