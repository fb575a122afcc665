"""What goes out: within the client's window and packet size, and what happens when it does not read."""

import asyncio
import json
from collections import Counter

import pytest

from penstock.wire.mqtt import (
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
    ReasonCode,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
    encode_packet,
)
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, both_versions, payloads
from tests.support.servers import RunningServer, StartServer

KIB = 1024
MIB = 1024 * KIB
BODY = bytes(KIB)
QUIET_S = 0.5
ROUND_S = 10.0
"""Much longer than a thousand messages take, on whatever machine."""


@pytest.fixture(scope="module")
def ledger_server(start_server: StartServer) -> RunningServer:
    """A server that reports drops ten times a second, and whose outboxes borrow nothing."""
    return start_server({"reaper_interval_ms": 100, "outbox": {"shared_bytes": 0}})


def policed(start_server: StartServer, policy: str, block_timeout_ms: int = 1_000) -> int:
    outbox = {"messages": 100, "bytes": 1 * MIB, "block_timeout_ms": block_timeout_ms}
    return start_server({"outbox": outbox, "mqtt": {"policy": policy}, "reaper_interval_ms": 100}).port


async def flood(publisher: Peer, topic: str, count: int, body: bytes = BODY) -> None:
    """Publish at QoS 0, as fast as the server takes it; each message begins with its number."""
    for first in range(0, count, 100):
        numbers = range(first, min(first + 100, count))
        packets = [Publish(topic, b"%08d" % number + body) for number in numbers]
        await publisher.send_bytes(b"".join(encode_packet(packet, publisher.version) for packet in packets))
    assert await publisher.fence() == []


async def read_all(peer: Peer) -> list[Packet]:
    """Everything until nothing more comes: a pong would overtake what waits in the outbox.

    A server that was only too busy for a while has something to say before its second pong.
    """
    got: list[Packet] = []
    while True:
        try:
            got.append(await peer.take(QUIET_S))
        except TimeoutError:
            if not (late := await peer.fence()):
                return got
            got += late


def numbers_of(packets: list[Packet]) -> list[int]:
    return [int(packet.payload[:8]) for packet in packets if isinstance(packet, Publish)]


class Drops:
    """What the server says it did not deliver, by client and reason."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.counts: Counter[tuple[str, str]] = Counter()

    @classmethod
    async def watch(cls, peers: Peers, port: int) -> "Drops":
        drops = cls(await peers.connect(port=port))
        await drops._peer.subscribe("$penstock/drops")
        await asyncio.sleep(0.3)  # the server notices at its next round that someone listens
        await drops._peer.fence()  # however late that is
        return drops

    async def wait_for(self, key: tuple[str, str], count: int) -> None:
        """Wait until that many have been told."""
        await self.wait_for_some(key, count)
        assert self.counts[key] == count

    async def wait_for_some(self, key: tuple[str, str], count: int = 1) -> None:
        """Wait until at least that many have been told."""
        while self.counts[key] < count:
            for row in json.loads((await self._peer.receive(Publish)).payload):
                self.counts[row["client_id"], row["reason"]] += row["count"]


# The window


async def test_no_more_are_on_their_way_than_the_client_takes(peers: Peers, name: str) -> None:
    peer = await peers.connect(properties=PacketProperties(receive_maximum=3))
    await peer.subscribe(name, qos=2)
    publisher = await peers.connect()
    for number in range(8):
        await publisher.publish(name, b"%d" % number, 1 + number % 2)
    await publisher.publish(name, b"nought", 0)
    got = await peer.fence()
    assert payloads(got) == [b"0", b"1", b"2"]  # MQTT-3.3.4-9
    first, second, third = [packet for packet in got if isinstance(packet, Publish)]
    await peer.send(PubRec(second.packet_id))
    assert await peer.fence() == [PubRel(second.packet_id)]  # no room yet, and not held back: MQTT-3.3.4-10
    await peer.send(PubComp(second.packet_id), PubAck(first.packet_id))
    more = await peer.fence()
    assert payloads(more) == [b"3", b"4"]
    await peer.send(PubAck(third.packet_id))
    assert payloads(await peer.fence()) == [b"5"]


async def test_refusal_makes_room_and_the_message_is_not_sent_again(peers: Peers, name: str) -> None:
    one = PacketProperties(receive_maximum=1, session_expiry=FOR_EVER)
    peer = await peers.connect(name, properties=one)
    await peer.subscribe(name, qos=2)
    publisher = await peers.connect()
    for qos in (1, 2, 1):
        await publisher.publish(name, b"%d" % qos, qos)
    first = await peer.receive(Publish)
    await peer.send(PubAck(first.packet_id, ReasonCode.QUOTA_EXCEEDED))
    second = await peer.receive(Publish)
    await peer.send(PubRec(second.packet_id, ReasonCode.QUOTA_EXCEEDED))
    third = await peer.receive(Publish)
    assert payloads([first, second, third]) == [b"1", b"2", b"1"]
    await peer.leave()
    peer = await peers.connect(name, properties=one, clean=False)
    assert [p.packet_id for p in await peer.fence() if isinstance(p, Publish)] == [third.packet_id]


@both_versions
async def test_window_of_the_server_holds_where_the_client_names_none(
    start_server: StartServer, peers: Peers, name: str, version: Version
) -> None:
    port = start_server({"mqtt": {"max_inflight": 4}}).port
    peer, publisher = await peers.connect("", version, port=port), await peers.connect(port=port)
    await peer.subscribe(name, qos=1)
    for number in range(10):
        await publisher.publish(name, b"%d" % number)
    got: list[Packet] = []
    while len(got) < 10:
        window = await peer.fence()
        assert 0 < len(window) <= 4
        got += window
        await peer.send(*(PubAck(p.packet_id) for p in window if isinstance(p, Publish)))
    assert payloads(got) == [b"%d" % number for number in range(10)]


@both_versions
async def test_packet_ids_in_use_are_not_given_again(peers: Peers, name: str, version: Version) -> None:
    peer, publisher = await peers.connect("", version), await peers.connect()
    await peer.subscribe(name, qos=1)
    await publisher.publish(name, b"first")
    first = await peer.receive(Publish)
    total, window = 66_000, 900
    for start in range(0, total, window):
        packets = [Publish(name, b"", 1, packet_id=number + 1) for number in range(window)]
        await publisher.send_bytes(b"".join(encode_packet(packet, Version.V5) for packet in packets))
        ids = {(await peer.receive(Publish)).packet_id for _ in range(window)}
        assert len(ids) == window, start
        assert first.packet_id not in ids  # MQTT-2.2.1-4
        assert 0 not in ids
        await peer.send_bytes(b"".join(encode_packet(PubAck(number), version) for number in ids))
        assert [(await publisher.receive(PubAck)).packet_id for _ in range(window)] == list(
            range(1, window + 1)
        )


# Size


async def test_message_too_large_for_a_client_is_left_out_and_told(
    ledger_server: RunningServer, peers: Peers, name: str
) -> None:
    drops = await Drops.watch(peers, ledger_server.port)
    limit = 200
    small = PacketProperties(maximum_packet_size=limit)
    peer = await peers.connect(name, properties=small, port=ledger_server.port)
    publisher = await peers.connect(port=ledger_server.port)
    await peer.subscribe(name, qos=2)
    for qos in range(3):
        overhead = len(encode_packet(Publish(name, b"", qos, packet_id=1), Version.V5)) + 1
        for size in (limit - overhead, limit - overhead + 1):
            await publisher.publish(name, bytes(size), qos)
    got = await peer.fence()
    lengths = [len(encode_packet(packet, Version.V5)) for packet in got]
    assert lengths == [limit, limit, limit]  # MQTT-3.1.2-24, -25
    await drops.wait_for((name, "packet-too-large"), 3)


# Who does not read


@both_versions
async def test_control_packets_do_not_wait_behind_the_outbox(
    peers: Peers, name: str, version: Version
) -> None:
    peer, publisher = await peers.connect("", version, is_slow=True), await peers.connect("", version)
    await peer.subscribe(name)
    await flood(publisher, name, 16_000)
    await peer.send(PingReq(), Unsubscribe(9, (name,)))
    await asyncio.sleep(0.1)
    got = await read_all(peer)
    places = [got.index(PingResp()), [type(packet) for packet in got].index(UnsubAck)]
    assert len(got) - max(places) > 4_000  # this many were waiting, and were overtaken
    assert numbers_of(got) == sorted(numbers_of(got))


async def test_subscriber_that_stops_reading_costs_bounded_memory_and_nobody_else_anything(
    ledger_server: RunningServer, peers: Peers, name: str, scale: int
) -> None:
    port = ledger_server.port
    drops = await Drops.watch(peers, port)
    stuck = await peers.connect(name, port=port, is_slow=True)
    witness, publisher = await peers.connect(port=port), await peers.connect(port=port)
    await stuck.subscribe(f"{name}/#")
    await witness.subscribe(f"{name}/#")
    before = ledger_server.memory_bytes
    count, rounds = 1_000, 40 * scale
    for _ in range(rounds):  # a megabyte each
        flooding = asyncio.create_task(flood(publisher, f"{name}/t", count))
        assert numbers_of([await witness.take() for _ in range(count)]) == list(range(count))
        await asyncio.wait_for(flooding, ROUND_S)
    assert ledger_server.memory_bytes - before < 30 * MIB
    delivered = len(await read_all(stuck))
    assert 6_000 < delivered < rounds * count  # its outbox, and what the socket took
    await drops.wait_for((name, "outbox-full"), rounds * count - delivered)


# Policies


async def test_drop_oldest_keeps_the_newest(start_server: StartServer, peers: Peers, name: str) -> None:
    port = policed(start_server, "drop-oldest")
    peer, publisher = await peers.connect(port=port, is_slow=True), await peers.connect(port=port)
    await peer.subscribe(name)
    await flood(publisher, name, 8_000)
    got = numbers_of(await read_all(peer))
    assert got == sorted(got)
    assert got[-100:] == list(range(7_900, 8_000))
    assert len(got) < 8_000


async def test_disconnect_ends_the_connection_and_what_follows_is_owed(
    start_server: StartServer, peers: Peers, name: str
) -> None:
    port = policed(start_server, "disconnect")
    will = Will(f"{name}/will", b"too slow")
    peer = await peers.connect(name, port=port, is_slow=True, expiry=FOR_EVER, will=will)
    publisher, witness = await peers.connect(port=port), await peers.connect(port=port)
    await peer.subscribe(name, qos=1)
    await witness.subscribe(f"{name}/+")
    await flood(publisher, name, 8_000)
    await publisher.publish(f"{name}/after", b"still here")
    assert payloads(await witness.fence()) == [b"too slow", b"still here"]
    await publisher.publish(name, b"00008000 owed")
    words = await peer.last_words()
    assert words[-1] == Disconnect(ReasonCode.QUOTA_EXCEEDED)
    assert 0 < len(words) < 8_000
    peer = await peers.connect(name, port=port, expiry=FOR_EVER, clean=False)
    assert peer.connack.session_present
    assert payloads(await peer.fence()) == [b"00008000 owed"]


@pytest.mark.parametrize("qos", [0, 1])
async def test_block_holds_the_publisher_back_until_the_reader_has_room(
    start_server: StartServer, peers: Peers, name: str, qos: int
) -> None:
    port = policed(start_server, "block", block_timeout_ms=60_000)
    peer, publisher = (
        await peers.connect(port=port, is_slow=True),
        await peers.connect("", Version.V311, port=port),
    )
    await peer.subscribe(name)
    count = 6_000

    async def publish() -> None:
        for number in range(count):
            packet_id = number % 60_000 + 1 if qos else 0
            await publisher.send(Publish(name, b"%08d" % number + BODY, qos, packet_id=packet_id))

    acked: list[int] = []

    async def take_acks() -> None:
        while len(acked) < count * qos:
            acked.append((await publisher.receive(PubAck)).packet_id)

    tasks = [asyncio.create_task(publish()), asyncio.create_task(take_acks())]
    got = []
    for _ in range(count):  # slower than the publisher
        got.append(await peer.take())
        if len(got) % 500 == 0:
            await asyncio.sleep(0.01)
    assert numbers_of(got) == list(range(count))  # nothing was dropped
    await asyncio.gather(*tasks)
    assert len(acked) == count * qos


async def test_block_lasts_no_longer_than_its_timeout(
    start_server: StartServer, peers: Peers, name: str
) -> None:
    port = policed(start_server, "block", block_timeout_ms=20)
    drops = await Drops.watch(peers, port)
    peer, publisher = await peers.connect(name, port=port, is_slow=True), await peers.connect(port=port)
    await peer.subscribe(name)
    count = 15_000  # more than all buffers on the way take
    await flood(publisher, name, count)  # held at each chunk that finds the outbox full, and let go again
    await drops.wait_for_some((name, "block-timeout"))
    got = numbers_of(await read_all(peer))
    assert got == sorted(got)
    assert got[-1] == count - 1
    await drops.wait_for((name, "block-timeout"), count - len(got))
    assert len(got) < count
