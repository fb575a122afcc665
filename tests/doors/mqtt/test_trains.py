"""Trains have the effect of the same messages one by one; the model is a server that makes none.

Random input of two publishers goes through two servers, one of which makes no trains. Subscribers of every
kind get the same bytes, and rings, counters, statistics and ledger say the same.
"""

import asyncio
from collections import Counter
from functools import partial
from itertools import count
from random import Random

import pytest

from penstock.app import Server
from penstock.config import load
from penstock.doors.mqtt.connection import Connection
from penstock.net.turn_shares import TurnShares
from penstock.wire.mqtt import (
    Connect,
    Disconnect,
    Packet,
    PacketProperties,
    PacketReader,
    PingReq,
    Publish,
    Request,
    Subscribe,
    Version,
    encode_packet,
)
from penstock.wire.mqtt.reader import Item
from tests.doors.mqtt.memory_transport import MemoryTransport
from tests.support.waiting import until

SEEDS = 12
STEP_S = 0.000_02
RULES = [
    {"filter": "mortal/#", "ttl_ms": 3_600_000},
    {"filter": "batched/#", "batch_size": 3, "batch_timeout_ms": 3_600_000},
    {"filter": "unkept/#", "ring_messages": 0},
]
TOPICS = [
    *(f"plain/{number}" for number in range(6)),
    "alone",
    "long/" + "x" * 100,
    "mortal/a",
    "batched/a",
    "unkept/a",
    "streamed",
]
PUBLISHERS = {"old": Version.V311, "new": Version.V5}


class Client:
    """A client of a server that does not listen."""

    def __init__(self, server: Server, packet: Connect) -> None:
        self.version = packet.version
        self.transport = MemoryTransport()
        self.connection = Connection(server.mqtt)
        self.connection.connection_made(self.transport)
        self.feed(packet)

    def feed(self, *packets: Packet) -> None:
        self.connection.data_received(b"".join(encode_packet(packet, self.version) for packet in packets))

    def take(self) -> dict[str, list[Item]]:
        """Packets that were written, by kind; how the kinds alternate depends on the time."""
        found: dict[str, list[Item]] = {}
        for packet in PacketReader(10_000_000, self.version).feed(bytes(self.transport.written)):
            found.setdefault(type(packet).__name__, []).append(packet)
        return found


class Scene:
    """A server with two publishers and subscribers of every kind."""

    def __init__(self, *, makes_trains: bool) -> None:
        flags = {"topics": RULES, "outbox.messages": 50, "outbox.shared_bytes": 0}
        self.server = Server(load(flags=flags).settings)
        # Time passes by steps, so that a busy machine does not end the share of a turn.
        self.server.mqtt.shares = TurnShares(self.server.mqtt.loop, partial(next, count(0.0, STEP_S)))
        self.clients: dict[str, Client] = {}
        self._makes_trains = makes_trains

    async def connect(self, name: str, version: Version, *requests: Request, **more: object) -> Client:
        properties = PacketProperties(**more)  # type: ignore[arg-type]
        is_lasting = properties.session_expiry is not None
        packet = Connect(name, version, clean_start=not is_lasting, properties=properties)
        client = self.clients[name] = Client(self.server, packet)
        await until(lambda: bool(client.transport.written), f"{name} was not accepted")
        client.connection._reader.makes_trains = self._makes_trains
        if requests:
            client.feed(Subscribe(1, requests))
        return client

    async def open(self) -> "Scene":
        await self.connect("old", PUBLISHERS["old"], Request("plain/1"))
        await self.connect("new", PUBLISHERS["new"], Request("#", no_local=True))
        await self.connect("everything-old", Version.V311, Request("#"))
        await self.connect("everything-new", Version.V5, Request("#"))
        await self.connect("acknowledging", Version.V311, Request("plain/#", 1), Request("alone"))
        await self.connect("some", Version.V311, Request("plain/2"), Request("plain/+"), Request("long/#"))
        await self.connect("small", Version.V5, Request("#"), maximum_packet_size=60)
        await self.connect("aliases", Version.V5, Request("#"), topic_alias_maximum=3)
        for name in ("member-1", "member-2"):
            await self.connect(name, Version.V5, Request("$share/group/#"))
        stuck = await self.connect("stuck", Version.V311, Request("#"))
        stuck.connection.pause_writing()
        away = await self.connect("away", Version.V5, Request("plain/#", 1), session_expiry=3_600)
        away.feed(Disconnect())
        await self.settle()
        return self

    async def settle(self) -> None:
        await until(lambda: not len(self.server.mqtt.shares), "input was not worked off")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def play(self, seed: int) -> None:
        random = Random(seed)
        rests = dict.fromkeys(PUBLISHERS, b"")
        for turn in range(12):
            for name, version in PUBLISHERS.items():
                data = rests[name] + some_input(random, version, turn)
                cut = random.randrange(len(data) + 1)
                for chunk in (data[:cut], data[cut:-3]):
                    if chunk:
                        self.clients[name].connection.data_received(chunk)
                rests[name] = data[-3:]
            await self.settle()
            if turn == 5:
                await self.connect("late", Version.V311, Request("plain/3"), Request("new/#"))
        for name, rest in rests.items():
            self.clients[name].connection.data_received(rest)
        await self.settle()
        self.clients["stuck"].connection.resume_writing()
        await until(lambda: self.server.broker.is_drained, "the stuck subscriber was not drained")

    def outcome(self) -> dict[str, object]:
        """Everything that does not depend on the time."""
        broker = self.server.broker
        topics = [topic for topic in broker.topics.values() if not topic.name.startswith("$")]
        rows = [row for row in broker.ledger.rows() if not row.topic.startswith("$")]
        losses: Counter[tuple[object, ...]] = Counter()
        for row in rows:
            losses[row.topic, row.client_id, row.reason, row.policy] += row.count
        return {
            "written": {name: client.take() for name, client in self.clients.items()},
            "counters": broker.counters.snapshot(),
            "topics": {each.name: (each.sequence, each.delivered, each.lost) for each in topics},
            "rings": {
                each.name: [
                    (run.sequence, run.offset, run.count, run.payload(), run.client_id, run.shape)
                    for run in each.runs
                ]
                for each in topics
            },
            "ledger": losses,
            "lost": broker.ledger.total,
            "head": broker.log.last_offset,
        }


def some_input(random: Random, version: Version, turn: int) -> bytes:
    packets: list[Packet] = []
    for _ in range(random.randrange(40)):
        topic = random.choice(TOPICS) if random.random() < 0.95 else f"new/{turn}/{random.randrange(3)}"
        qos = 1 if random.random() < 0.05 else 0
        is_dressed = version is Version.V5 and random.random() < 0.05
        publish = Publish(
            topic,
            random.randbytes(random.choice((0, 1, 7, 7, 7, 30, 110, 200, 5_000))),
            qos,
            retain=random.random() < 0.05,
            packet_id=random.randrange(1, 60_000) if qos else 0,
            properties=PacketProperties(content_type="x") if is_dressed else PacketProperties(),
        )
        packets += [publish] * random.choice((1, 1, 1, 2, 6))
        if random.random() < 0.03:
            packets.append(PingReq())
    return b"".join(encode_packet(packet, version) for packet in packets)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_trains_change_nothing_that_can_be_seen(seed: int, scale: int) -> None:
    for each in range(seed * scale, (seed + 1) * scale):
        scenes = [await Scene(makes_trains=makes_trains).open() for makes_trains in (True, False)]
        for scene in scenes:
            await scene.play(each)
        with_trains, without = [scene.outcome() for scene in scenes]
        for part in without:
            assert with_trains[part] == without[part], f"seed {each}: {part}"
        assert with_trains["lost"], "nothing was lost: the scene has no slow subscriber"
