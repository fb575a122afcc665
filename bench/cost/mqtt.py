"""MQTT workloads: publishes of all levels, alone and in chunks, to one subscriber and to many.

Version 3.1.1, topics of 27 bytes and payloads of 64, as in the scenarios of the bench.
"""

import asyncio
import time
from collections.abc import Sequence

from bench.cost.harness import (
    TOTAL,
    AwaitedTransport,
    Laps,
    SinkTransport,
    Site,
    require_count,
)
from penstock.doors.mqtt.connection import Connection
from penstock.errors import PenstockError
from penstock.net.turn_shares import MOST_WORK
from penstock.runs import Run, Train
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import Connect, Publish, Request, Subscribe, Version
from penstock.wire.mqtt.run_reader import RunReader

TOPICS = [f"bench/site-{number:03}/sensor/tempr" for number in range(200)]
MARK = b"bench/site-"
"""Part of each delivery, and of nothing else that is written."""
FILTER = "bench/#"
PAYLOAD = b"x" * 64
CHUNK_BYTES = 64 * 1024
PUBLISHERS = 50
SUBSCRIBERS = 100
BATCH = 100
"""Messages of a turn at QoS 1 and 2."""
ACK_BYTES = 4
PUBACK, PUBREC, PUBREL, PUBCOMP = (bytes([first, 2]) for first in (0x40, 0x50, 0x62, 0x70))
READ, PUBLISH, DELIVER, ACKNOWLEDGE = "read", "publish", "deliver", "acknowledge"


class Client:
    """One connection of the door, and its transport."""

    def __init__(
        self, site: Site, client_id: str, *, is_clean: bool = True, transport: SinkTransport | None = None
    ) -> None:
        self.transport = transport or SinkTransport()
        connection = Connection(site.server.mqtt)
        self.transport.open(connection)
        self.feed = connection.data_received
        self.feed(encode_packet(Connect(client_id, Version.V311, clean_start=is_clean), Version.V311))

    async def subscribe(self, filter: str, qos: int) -> None:
        """Subscribe, and forget the responses so far."""
        self.feed(encode_packet(Subscribe(1, (Request(filter, qos),)), Version.V311))
        await until_written(self, 9)  # CONNACK and SUBACK
        self.transport.take()


async def until_written(client: Client, size_bytes: int) -> None:
    """Let the loop run until a client's first responses are there."""
    written = 0
    async with asyncio.timeout(30):
        while written < size_bytes:
            await asyncio.sleep(0)
            written += len(client.transport.take())


def message(number: int, payload: bytes = PAYLOAD, qos: int = 0, packet_id: int = 0) -> bytes:
    """Bytes of a publish to one of the topics."""
    publish = Publish(TOPICS[number % len(TOPICS)], payload, qos, packet_id=packet_id)
    return encode_packet(publish, Version.V311)


class StageReader:
    """The reader of a connection without the connection, to time it alone."""

    def __init__(self, site: Site) -> None:
        door = site.server.mqtt
        self._reader = RunReader(door.limit_bytes, door.names, abilities=door.abilities)
        self._reader.feed(encode_packet(Connect("reader", Version.V311), Version.V311))
        self._reader.work_limit = MOST_WORK
        self._reader.makes_trains = True

    def read(self, data: bytes) -> list[list[Run | Train]]:
        """Runs and trains of a chunk of publishes, in steps as a connection reads them."""
        steps, start = [], 0
        while start < len(data):
            steps.append(self._reader.feed(data, start))
            start = self._reader.position
        return steps  # type: ignore[return-value]  # it has no other packets


class Plain:
    """Publishes at QoS 0: turns of one or more chunks, each of a publisher."""

    def __init__(
        self, site: Site, turns: Sequence[Sequence[bytes]], count: int, *, is_lone: bool = False
    ) -> None:
        """Args:
        turns: for each turn the chunks of the publishers, one for each.
        count: messages of all turns.
        is_lone: chunks come so seldom that each is a turn of its own.
        """
        self.count = self._messages = count
        self._site = site
        self._feeds = [Client(site, f"publisher-{number}").feed for number in range(len(turns[0]))]
        self._turns = turns
        self._is_lone = is_lone
        self._subscribers: list[Client] = []
        self._reader = StageReader(site)

    async def add_subscribers(self, count: int) -> "Plain":
        """Subscribe this many clients to all topics."""
        for number in range(count):
            subscriber = Client(self._site, f"subscriber-{number}")
            await subscriber.subscribe(FILTER, 0)
            self._subscribers.append(subscriber)
        self.count = self._messages * count
        return self

    async def run(self, laps: Laps) -> None:
        feeds, flush, pass_time = self._feeds, self._site.flush, self._site.loop.pass_time
        if self._is_lone:
            [feed] = feeds
            laps.start()
            for [chunk] in self._turns:
                pass_time()
                feed(chunk)
        else:
            laps.start()
            for chunks in self._turns:
                for feed, chunk in zip(feeds, chunks, strict=True):
                    feed(chunk)
                flush()
        laps.stop(TOTAL)

    async def run_stages(self, laps: Laps) -> None:
        broker, loop = self._site.server.broker, self._site.loop
        for chunks in self._turns:
            if self._is_lone:
                loop.pass_time()
                with broker.turn(loop.time()):
                    self._read_and_publish(chunks, laps)
                    laps.start()
            else:
                self._read_and_publish(chunks, laps)
                laps.start()
                broker.flush()
            laps.stop(DELIVER)

    def _read_and_publish(self, chunks: Sequence[bytes], laps: Laps) -> None:
        broker = self._site.server.broker
        sender = broker.sessions["publisher-0"]
        for chunk in chunks:
            laps.start()
            steps = self._reader.read(chunk)
            laps.stop(READ)
            laps.start()
            for items in steps:
                for item in items:
                    if isinstance(item, Train):
                        broker.publish_train(item, sender, fail)
                    else:
                        broker.publish_all([item], sender, fail)
            laps.stop(PUBLISH)

    def check(self) -> None:
        found = sum(subscriber.transport.take().count(MARK) for subscriber in self._subscribers)
        require_count("deliveries", found, self.count)


def fail(run: Run, error: PenstockError) -> None:
    """Refuse nothing: a refused message ends the measurement."""
    raise error


async def mixed(site: Site, count: int) -> Plain:
    """200 topics in turn, in chunks of 64 KiB."""
    return await _stream(site, [message(number) for number in range(count)])


async def varying(site: Site, count: int) -> Plain:
    """The same with payloads of 20 to 109 bytes."""
    return await _stream(site, [message(number, b"y" * (20 + number * 7 % 90)) for number in range(count)])


async def one_topic(site: Site, count: int) -> Plain:
    """The same with one topic."""
    return await _stream(site, [message(0)] * count)


async def lone(site: Site, count: int) -> Plain:
    """One message in each turn."""
    turns = [[message(0)]] * count
    return await Plain(site, turns, count, is_lone=True).add_subscribers(1)


async def unbatched(site: Site, count: int) -> Plain:
    """50 publishers, each with one message in each turn."""
    chunks = [message(number) for number in range(PUBLISHERS)]
    turns = max(count // PUBLISHERS, 1)
    return await Plain(site, [chunks] * turns, turns * PUBLISHERS).add_subscribers(1)


async def fan_out(site: Site, count: int) -> Plain:
    """One message in each turn to 100 subscribers; the figure is for each delivery."""
    turns = [[message(number)] for number in range(max(count // SUBSCRIBERS, 1))]
    return await Plain(site, turns, len(turns), is_lone=True).add_subscribers(SUBSCRIBERS)


async def _stream(site: Site, messages: list[bytes]) -> Plain:
    """One publisher whose messages are cut into chunks where a socket's buffer would end."""
    data = b"".join(messages)
    turns = [[data[start : start + CHUNK_BYTES]] for start in range(0, len(data), CHUNK_BYTES)]
    return await Plain(site, turns, len(messages)).add_subscribers(1)


class Acknowledged:
    """Batches at QoS 1 or 2, acknowledged by the server and by the subscriber."""

    def __init__(self, site: Site, qos: int, count: int) -> None:
        self._turns = max(count // BATCH, 1)
        self.count = self._turns * BATCH
        self._site = site
        self._qos = qos
        self._publisher = Client(site, "publisher-0")
        self._subscriber = Client(site, "subscriber-0")
        ids = range(1, BATCH + 1)
        self._batch = b"".join(message(0, qos=qos, packet_id=number) for number in ids)
        self._releases = acks(PUBREL, [number.to_bytes(2) for number in ids])
        self._delivered = self._responses = 0
        self._expected_responses = self.count * qos  # PUBACK, or PUBREC and PUBCOMP
        self._expected_releases = self.count * (qos == 2)
        self._released = 0

    async def subscribe(self) -> "Acknowledged":
        """Subscribe to all topics."""
        await self._subscriber.subscribe(FILTER, self._qos)
        self._publisher.transport.take()
        return self

    async def run(self, laps: Laps) -> None:
        self._delivered = self._responses = self._released = 0
        for _ in range(self._turns):
            self._turn(laps)

    def _turn(self, laps: Laps) -> None:
        publisher, subscriber, flush = self._publisher, self._subscriber, self._site.flush
        laps.start()
        publisher.feed(self._batch)
        laps.stop(PUBLISH)
        laps.start()
        flush()
        laps.stop(DELIVER)
        ids = packet_ids(subscriber.transport.take())
        self._delivered += len(ids)
        replies = [PUBACK] if self._qos == 1 else [PUBREC, PUBCOMP]
        chunks = [(subscriber.feed, acks(reply, ids)) for reply in replies]
        if self._qos == 2:
            chunks.append((publisher.feed, self._releases))
        laps.start()
        for feed, chunk in chunks:
            feed(chunk)
            flush()
        laps.stop(ACKNOWLEDGE)
        self._responses += len(publisher.transport.take()) // ACK_BYTES
        self._released += len(subscriber.transport.take()) // ACK_BYTES

    async def run_stages(self, laps: Laps) -> None:
        """Measured by `run`, which separates them."""

    def check(self) -> None:
        require_count("deliveries", self._delivered, self.count)
        require_count("responses to the publisher", self._responses, self._expected_responses)
        require_count("releases to the subscriber", self._released, self._expected_releases)


def packet_ids(delivered: bytes) -> list[bytes]:
    """Packet ids of deliveries that all have the length of the first."""
    if not delivered:
        return []
    size = 2 + delivered[1]
    start = 4 + len(TOPICS[0])
    return [delivered[at + start : at + start + 2] for at in range(0, len(delivered), size)]


def acks(kind: bytes, ids: Sequence[bytes]) -> bytes:
    """One chunk of acknowledgements."""
    return b"".join([kind + number for number in ids])


async def qos1(site: Site, count: int) -> Acknowledged:
    """Batches of 100 at QoS 1, with both acknowledgements."""
    return await Acknowledged(site, 1, count).subscribe()


async def qos2(site: Site, count: int) -> Acknowledged:
    """Batches of 100 at QoS 2, with all acknowledgements."""
    return await Acknowledged(site, 2, count).subscribe()


class Durable:
    """Publishers at QoS 1 with a data directory, each with a subscriber with a persistent session.

    The figure is the CPU time of the whole process: that of the loop, and that of the threads that write.
    """

    def __init__(self, site: Site, count: int) -> None:
        self._publishers = [
            Client(site, f"publisher-{number}", transport=AwaitedTransport()) for number in range(PUBLISHERS)
        ]
        self._subscribers = [
            Client(site, f"subscriber-{number}", is_clean=False, transport=AwaitedTransport())
            for number in range(PUBLISHERS)
        ]
        self._turns = max(count // (PUBLISHERS * BATCH), 1)
        self.count = self._turns * PUBLISHERS * BATCH
        ids = range(1, BATCH + 1)
        self._batches = [
            b"".join(message(number, qos=1, packet_id=packet_id) for packet_id in ids)
            for number in range(PUBLISHERS)
        ]
        self._site = site
        self._acknowledged = self._delivered = 0

    async def subscribe(self) -> "Durable":
        """Subscribe each session to the topic of its publisher."""
        for number, subscriber in enumerate(self._subscribers):
            await subscriber.subscribe(TOPICS[number], 1)
        for publisher in self._publishers:
            publisher.transport.take()
        return self

    async def run(self, laps: Laps) -> None:
        self._acknowledged = self._delivered = 0
        for _ in range(self._turns):
            await self._turn(laps)

    async def _turn(self, laps: Laps) -> None:
        awaited = [
            *(_expect(publisher, BATCH * ACK_BYTES) for publisher in self._publishers),
            *map(_expect, self._subscribers, map(len, self._batches)),
        ]
        process, thread = time.process_time_ns(), time.thread_time_ns()
        for publisher, batch in zip(self._publishers, self._batches, strict=True):
            publisher.feed(batch)
        await _all(awaited)
        self._add(laps, process, thread)
        delivered = [subscriber.transport.take() for subscriber in self._subscribers]
        self._delivered += sum(data.count(MARK) for data in delivered)
        chunks = [acks(PUBACK, packet_ids(data)) for data in delivered]
        process, thread = time.process_time_ns(), time.thread_time_ns()
        for subscriber, chunk in zip(self._subscribers, chunks, strict=True):
            subscriber.feed(chunk)
        self._site.flush()
        await asyncio.sleep(0)
        self._add(laps, process, thread)
        for publisher in self._publishers:
            self._acknowledged += len(publisher.transport.take()) // ACK_BYTES

    @staticmethod
    def _add(laps: Laps, process_ns: int, thread_ns: int) -> None:
        loop_ns = time.thread_time_ns() - thread_ns
        laps.add("loop", loop_ns)
        laps.add("disk threads", max(time.process_time_ns() - process_ns - loop_ns, 0))

    async def run_stages(self, laps: Laps) -> None:
        """Measured by `run`, which separates them."""

    def check(self) -> None:
        require_count("deliveries", self._delivered, self.count)
        require_count("acknowledgements", self._acknowledged, self.count)


def _expect(client: Client, size_bytes: int) -> "asyncio.Future[None]":
    assert isinstance(client.transport, AwaitedTransport)
    return client.transport.expect(size_bytes)


async def _all(awaited: "Sequence[asyncio.Future[None]]") -> None:
    async with asyncio.timeout(60):
        for each in awaited:
            await each


async def durable(site: Site, count: int) -> Durable:
    """50 publishers at QoS 1, 100 in flight each, with a log on disk."""
    return await Durable(site, count).subscribe()
