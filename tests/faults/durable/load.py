"""Publishers and subscribers who keep their sessions, and their half of every promise, across crashes.

They do what the specification asks of a client: a publisher sends what was not acknowledged again, marked as
a repetition, under the same packet identifier and in the same order; a subscriber remembers which QoS 2
messages it has taken until they are released. What each of them saw is compared in `reckoning.py`.
"""

import asyncio
from collections import OrderedDict
from enum import Enum

from penstock.client import ConnectionLost, ConnectionRefused, PacketStream
from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketProperties,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Reply,
    Request,
    SubAck,
    Subscribe,
    Version,
)
from tests.doors.mqtt.peers import FOR_EVER
from tests.faults.durable.homes import Home, NobodyHome

KNOCK_EVERY_S = 0.02
PATIENCE_S = 20.0
TOPICS = 3
"""Each publisher writes to so many topics in turn; its order holds across them."""

Name = tuple[str, int]
"""A message: who published it, and the how manyth it was."""


def body_of(publisher: str, number: int, size: int = 0) -> bytes:
    """A payload that can be checked: nothing but this message has it."""
    head = f"{publisher}:{number}:".encode()
    return (head * (size // len(head) + 1))[: max(size, len(head))]


def name_of(payload: bytes, size: int = 0) -> Name | None:
    """Whose payload this is; None if it is nobody's."""
    publisher, _, rest = payload.partition(b":")
    number, _, _ = rest.partition(b":")
    if not number.isdigit():
        return None
    name = publisher.decode("utf-8", "replace"), int(number)
    return name if payload == body_of(*name, size) else None


class Caller:
    """A client that always comes back to its session, and counts the times it was not there any more."""

    def __init__(self, home: Home, client_id: str, version: Version, window: int = 0) -> None:
        self.client_id = client_id
        self.version = version
        self.visits = 0
        self.sessions_lost = 0
        self.turned_away: list[ConnAck] = []
        self._home = home
        self._window = window
        self._stream: PacketStream | None = None
        home.request_senders.append(self)

    async def connect(self) -> PacketStream:
        """Come (back) as soon as there is a server."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await self._connect_once()
                except (ConnectionRefused, ConnectionLost, NobodyHome):
                    await asyncio.sleep(KNOCK_EVERY_S)

    async def _connect_once(self) -> PacketStream:
        keeps = PacketProperties(session_expiry=FOR_EVER, receive_maximum=self._window or None)
        stream = await PacketStream.open("127.0.0.1", self._home.port, self.version)
        try:
            await stream.send(Connect(self.client_id, self.version, False, properties=keeps))
            connack = await stream.receive()
            assert isinstance(connack, ConnAck), connack
            if connack.reason:
                self.turned_away.append(connack)
                raise ConnectionRefused("not now", connack.reason)
        except BaseException:
            await hang_up(stream)
            raise
        if self.visits and not connack.session_present:
            self.sessions_lost += 1
        self.visits += 1
        self._stream = stream
        return stream

    async def leave(self) -> None:
        """Say goodbye; the session stays."""
        assert self._stream is not None
        await self._stream.send(Disconnect())
        await self._stream.close()
        self._stream = None

    async def cut(self) -> None:
        """Be gone, as a client that crashes itself."""
        if self._stream is not None:
            await hang_up(self._stream)


async def hang_up(stream: PacketStream) -> None:
    """End a connection at once, and wait until it is gone."""
    stream.abort()
    await stream.close()


class Stage(Enum):
    """How far a message is on its way to the server."""

    PUBLISHED = 1
    RELEASED = 2


class Publisher(Caller):
    """Publishes numbered messages, as many at once as its window takes, until it is told to finish."""

    def __init__(
        self,
        home: Home,
        client_id: str,
        version: Version,
        qos: int,
        *,
        window: int = 20,
        count: int | None = None,
        size: int = 0,
        insists: bool = False,
    ) -> None:
        super().__init__(home, client_id, version)
        self.qos = qos
        self.size = size
        self.published = 0
        self.acknowledged: set[int] = set()
        """The numbers of messages that the server has taken over."""
        self.refusals: list[Reply] = []
        self._insists = insists
        """Publish once more what was refused; with a window of one message this keeps the order."""
        self._most = window
        self._count = count
        self._refused: list[int] = []
        self._last_id = 0
        self._on_their_way: OrderedDict[int, tuple[int, Stage]] = OrderedDict()

    def finish(self) -> None:
        """Begin nothing new."""
        self._count = self.published

    async def run(self) -> None:
        """Publish until everything is acknowledged, however often the server ends meanwhile."""
        while not self._is_done:
            stream = await self.connect()
            try:
                await self._work(stream)
            except ConnectionLost:
                await stream.close()
                await asyncio.sleep(KNOCK_EVERY_S)
        await self.leave()

    @property
    def _is_done(self) -> bool:
        is_last = self._count is not None and self.published >= self._count
        return is_last and not self._on_their_way and not self._refused

    async def _work(self, stream: PacketStream) -> None:
        for packet_id in list(self._on_their_way):
            stream.write(self._packet(packet_id, dup=True))
        while not self._is_done:
            self._fill(stream)
            await stream.drain()
            is_taken = self._take(stream, await stream.receive(PATIENCE_S))
            if not is_taken:
                await asyncio.sleep(KNOCK_EVERY_S)

    def _fill(self, stream: PacketStream) -> None:
        while len(self._on_their_way) < self._most and (number := self._next()) is not None:
            packet_id = self._free_id()
            self._on_their_way[packet_id] = number, Stage.PUBLISHED
            stream.write(self._packet(packet_id, dup=False))

    def _next(self) -> int | None:
        if self._refused:
            return self._refused.pop(0)
        if self._count is not None and self.published >= self._count:
            return None
        self.published += 1
        return self.published - 1

    def _free_id(self) -> int:
        while True:
            self._last_id = self._last_id % 65_535 + 1
            if self._last_id not in self._on_their_way:
                return self._last_id

    def _packet(self, packet_id: int, *, dup: bool) -> Packet:
        number, stage = self._on_their_way[packet_id]
        if stage is Stage.RELEASED:
            return PubRel(packet_id)
        topic = f"load/{self.client_id}/{number % TOPICS}"
        body = body_of(self.client_id, number, self.size)
        return Publish(topic, body, self.qos, packet_id=packet_id, dup=dup)

    def _take(self, stream: PacketStream, packet: Packet) -> bool:
        """What to do about an answer; False if it was a no."""
        if isinstance(packet, Disconnect):  # the server says why it closes; the end comes next
            return True
        assert isinstance(packet, PubAck | PubRec | PubComp), packet
        number, _ = self._on_their_way[packet.packet_id]
        if isinstance(packet, PubRec) and packet.reason < 0x80:
            self._on_their_way[packet.packet_id] = number, Stage.RELEASED
            stream.write(PubRel(packet.packet_id))
            return True
        del self._on_their_way[packet.packet_id]
        # A crash before a PUBCOMP arrives makes us release once more what the server has done with.
        if packet.reason < 0x80 or isinstance(packet, PubComp):
            self.acknowledged.add(number)
            return True
        self.refusals.append(packet)
        if self._insists:
            self._refused.append(number)
        return False


class Subscriber(Caller):
    """Takes everything below `load_app/`, and remembers what came in which order."""

    def __init__(
        self,
        home: Home,
        client_id: str,
        version: Version,
        qos: int,
        *,
        pace_s: float = 0.0,
        window: int = 0,
        size: int = 0,
    ) -> None:
        super().__init__(home, client_id, version, window)
        self.qos = qos
        self.pace_s = pace_s
        """How long it thinks about every packet."""
        self.arrivals: list[Name] = []
        self.mistakes: list[str] = []
        """What no server may send: unknown payloads, and packet identifiers that are still in use."""
        self._size = size
        self._unreleased: dict[int, bytes] = {}
        self._came = asyncio.Event()
        self._pongs = 0

    async def subscribe(self, filter: str = "load/#") -> None:
        """Come for the first time and say what is wanted."""
        stream = await self.connect()
        await stream.send(Subscribe(1, (Request(filter, self.qos),)))
        suback = await stream.receive(PATIENCE_S)
        assert isinstance(suback, SubAck)
        assert suback.reasons == (self.qos,)

    async def run(self) -> None:
        """Take messages until cancelled, however often the server ends meanwhile."""
        while True:
            stream = self._stream or await self.connect()
            try:
                while True:
                    self._take(stream, await stream.receive())
                    if self.pace_s:
                        await asyncio.sleep(self.pace_s)
                    await stream.drain()
            except ConnectionLost:
                await stream.close()
                self._stream = None

    async def has(self, wanted: set[Name]) -> None:
        """Wait until all of these have arrived.

        Raises:
            TimeoutError: nothing has come for a long time, and some are still missing.
        """
        missing = wanted - set(self.arrivals)
        while missing:
            seen = len(self.arrivals)
            self._came.clear()
            await asyncio.wait_for(self._came.wait(), PATIENCE_S)
            missing -= set(self.arrivals[seen:])

    async def settle(self) -> None:
        """Let what the server still has in hand arrive: repetitions come late, releases a little later."""
        assert self._stream is not None
        for _ in range(3):
            wanted = self._pongs + 1
            await self._stream.send(PingReq())
            while self._pongs < wanted or self._unreleased:
                self._came.clear()
                await asyncio.wait_for(self._came.wait(), PATIENCE_S)

    def _take(self, stream: PacketStream, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._take_message(stream, packet)
        elif isinstance(packet, PubRel):
            self._unreleased.pop(packet.packet_id, None)
            stream.write(PubComp(packet.packet_id))
        elif isinstance(packet, PingResp):
            self._pongs += 1
        else:
            assert isinstance(packet, Disconnect), packet
        self._came.set()

    def _take_message(self, stream: PacketStream, packet: Publish) -> None:
        if packet.qos == 1:
            stream.write(PubAck(packet.packet_id))
        elif packet.qos == 2:
            stream.write(PubRec(packet.packet_id))
            known = self._unreleased.get(packet.packet_id)
            if known is not None:
                if known != packet.payload:
                    self.mistakes.append(f"{packet.packet_id} is still in use for {known!r}: {packet}")
                return
            self._unreleased[packet.packet_id] = packet.payload
        name = name_of(packet.payload, self._size)
        if name is None or not packet.topic.startswith(f"load/{name[0]}/"):
            self.mistakes.append(f"nobody published {packet}")
        else:
            self.arrivals.append(name)
