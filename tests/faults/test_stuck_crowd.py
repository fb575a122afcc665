"""A crowd that stops reading at once: what waits for them is kept once, and what is dropped is told."""

import asyncio
import json
from collections import Counter

from penstock.wire.mqtt import Packet, Publish, Version, encode_packet
from tests.doors.mqtt.peers import Peer, Peers, payloads
from tests.faults.watching import MIB, Costs, Witness
from tests.support.servers import StartServer

STUCK = 10
BODY = bytes(2_000)
BATCH = 64
NEWS_EVERY_MS = 100
QUIET_S = 1.0
"""Much longer than the server waits between news."""


async def flood(publisher: Peer, topic: str, count: int) -> None:
    """So many messages, each with its number, as fast as they are taken."""
    for start in range(0, count, BATCH):
        packets = [Publish(topic, b"%08d" % number + BODY) for number in range(start, start + BATCH)]
        await publisher.send_bytes(b"".join(encode_packet(packet, publisher.version) for packet in packets))
    await publisher.fence()


async def dropped(watcher: Peer) -> Counter[str]:
    """What each client did not get, as the server tells it, until there are no more news."""
    told: Counter[str] = Counter()
    while True:
        try:
            news: list[Packet] = [await watcher.receive(Publish, QUIET_S)]
        except TimeoutError:
            news = await watcher.fence()  # of a server that was too busy to tell them in time
            if not news:
                return told
        for payload in payloads(news):
            for row in json.loads(payload):
                assert row["reason"] == "outbox-full"
                told[row["client_id"]] += row["count"]


async def read_on(peer: Peer, count: int) -> None:
    """Take what waited, which must be so many messages, in their order, and no more."""
    numbers = [int((await peer.receive(Publish)).payload[:8]) for _ in range(count)]
    assert numbers == sorted(set(numbers))
    assert await peer.fence() == []


async def test_crowd_that_stops_reading_costs_no_more_than_what_one_is_kept(
    start_server: StartServer, peers: Peers, scale: int
) -> None:
    """Forty megabytes to each of them, ten times that in a soak; all that waits is shared."""
    server, count = start_server({"reaper_interval_ms": NEWS_EVERY_MS}), BATCH * 320 * scale
    watcher = await peers.connect(port=server.port)
    await watcher.subscribe("$penstock/drops")
    crowd = [await peers.connect(f"stuck {n}", port=server.port, is_slow=True) for n in range(STUCK)]
    for peer in crowd:
        await peer.subscribe("flood")
    async with Witness(server):
        await asyncio.sleep(
            5 * NEWS_EVERY_MS / 1000
        )  # so that someone listens to the news when there are some
        costs = Costs(server)
        publisher = await peers.connect("", Version.V311, port=server.port)
        await flood(publisher, "flood", count)
        assert costs.more_bytes < 60 * MIB
    told = await dropped(watcher)
    assert len(told) == STUCK
    for number, peer in enumerate(crowd):
        await read_on(peer, count - told[f"stuck {number}"])
