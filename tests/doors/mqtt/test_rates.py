"""How fast one client may publish, where that is limited."""

import asyncio

import pytest

from penstock.wire.mqtt import PubAck, Publish, PubRec, ReasonCode, Version, encode_packet
from tests.doors.mqtt.peers import Peers, both_versions
from tests.support.servers import RunningServer, StartServer

BURST = 10


@pytest.fixture(scope="module")
def limited(start_server: StartServer) -> RunningServer:
    return start_server({"mqtt": {"publish_rate": 20, "publish_burst": BURST}})


@pytest.mark.parametrize(("qos", "kind"), [(1, PubAck), (2, PubRec)])
async def test_mqtt_5_client_is_told_what_was_too_much(
    limited: RunningServer, peers: Peers, name: str, qos: int, kind: type[PubAck | PubRec]
) -> None:
    reader, peer = await peers.connect(port=limited.port), await peers.connect(port=limited.port)
    await reader.subscribe(name)
    messages = [Publish(name, b"%d" % n, qos, packet_id=n) for n in range(1, 2 * BURST + 1)]
    await peer.send_bytes(b"".join(encode_packet(message, Version.V5) for message in messages))
    replies = [await peer.receive(kind) for _ in messages]
    taken = [reply.packet_id for reply in replies if reply.reason == 0]
    assert taken[:BURST] == list(range(1, BURST + 1))
    assert {reply.reason for reply in replies} == {0, ReasonCode.QUOTA_EXCEEDED}
    received = [int(message.payload) for message in await reader.receive_all(len(taken))]
    assert received == taken
    assert await reader.fence() == []


@both_versions
async def test_who_cannot_be_told_waits_and_loses_nothing(
    limited: RunningServer, peers: Peers, name: str, version: Version
) -> None:
    reader = await peers.connect(port=limited.port)
    peer = await peers.connect("", version, port=limited.port)
    await reader.subscribe(name)
    qos = 0 if version is Version.V5 else 1
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(1, 3 * BURST + 1):
        await peer.send(Publish(name, b"%d" % number, qos, packet_id=number if qos else 0))
        await asyncio.sleep(0)
    messages = await reader.receive_all(3 * BURST)
    assert [int(message.payload) for message in messages] == list(range(1, 3 * BURST + 1))
    await peer.fence()
    assert loop.time() - began > 0.5  # what is beyond the burst takes a second at this rate


async def test_others_are_not_slowed_down(limited: RunningServer, peers: Peers, name: str) -> None:
    busy, other = await peers.connect(port=limited.port), await peers.connect(port=limited.port)
    await busy.send(*(Publish(name, b"x") for _ in range(10 * BURST)))
    assert await other.publish(name, b"y") == ReasonCode.NO_MATCHING_SUBSCRIBERS


async def test_coming_again_does_not_fill_the_bucket(
    start_server: StartServer, peers: Peers, name: str
) -> None:
    port = start_server({"mqtt": {"publish_rate": 0.01, "publish_burst": BURST}}).port
    replies: list[int] = []
    for _ in range(3):
        peer = await peers.connect(name, port=port)
        await peer.send(*(Publish(name, b"", 1, packet_id=n) for n in range(1, BURST + 1)))
        replies += [(await peer.receive(PubAck)).reason for _ in range(BURST)]
        await peer.leave()
    assert replies[BURST:].count(ReasonCode.QUOTA_EXCEEDED) >= 2 * BURST - 1
