"""An orderly stop: nobody new, everything accepted is delivered, a reason for those who can read one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.client import ConnectionLost, ConnectionRefused, MqttClient, ReasonCode, RequestRefused, Version
from penstock.wire.mqtt import Disconnect, Packet, Publish, encode_packet
from tests.doors.mqtt.peers import Peer, Peers, both_versions, every_qos
from tests.support.servers import STOP_TIMEOUT_S, RunningServer, StartServer
from tests.support.waiting import until

GOODBYE = Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)
BODY = bytes(1000)


@pytest.fixture
def fresh(start_server: StartServer) -> RunningServer:
    """Whatever holds it up would do so for longer than `stop` waits."""
    return start_server({"shutdown_timeout_s": 5 * STOP_TIMEOUT_S})


@pytest.fixture
async def peers(fresh: RunningServer) -> AsyncIterator[Peers]:
    peers = Peers(fresh.port, hears_words=False)
    yield peers
    await peers.close()


def words_for(version: Version) -> list[Packet]:
    return [GOODBYE] if version is Version.V5 else []


async def drains(server: RunningServer) -> None:
    """Wait until nobody new is let in."""
    while True:
        try:
            async with MqttClient.connect(port=server.port):
                await asyncio.sleep(0.01)
        except (ConnectionLost, ConnectionRefused):
            return


async def has_ended(server: RunningServer) -> None:
    """Wait until it has ended, which it has to do soon."""
    await asyncio.to_thread(server.stop)


def numbers_of(packets: list[Packet]) -> list[int]:
    return [int(packet.payload[:8]) for packet in packets if isinstance(packet, Publish)]


async def test_idle_clients_are_told_and_it_ends_at_once(fresh: RunningServer, peers: Peers) -> None:
    clients = [await peers.connect("", version) for version in Version for _ in range(20)]
    await peers.open()  # one that never said anything
    fresh.terminate()
    for client in clients:
        assert await client.last_words() == words_for(client.version)
        await client.stream.close()
    await has_ended(fresh)


@both_versions
@every_qos
async def test_everything_acknowledged_under_load_is_delivered(
    fresh: RunningServer, version: Version, qos: int
) -> None:
    acknowledged: list[int] = []
    received: list[int] = []

    async def publish(first: int) -> None:
        """Publish until the server does not want any more."""
        async with MqttClient.connect(port=fresh.port, version=version) as client:
            number = first
            while True:
                try:
                    await client.publish("load", b"%08d" % number + BODY, qos=max(qos, 1))
                except (ConnectionLost, RequestRefused):
                    return
                acknowledged.append(number)
                number += 4

    async def subscribe(client: MqttClient) -> None:
        try:
            async for message in client.messages:
                received.append(int(message.payload[:8]))
        except ConnectionLost as lost:
            assert lost.reason == (ReasonCode.SERVER_SHUTTING_DOWN if version is Version.V5 else None)
        await client.disconnect()

    client = await MqttClient.connect(port=fresh.port, version=version)
    await client.subscribe("load", qos=qos)
    reading = asyncio.create_task(subscribe(client))
    publishing = [asyncio.create_task(publish(first)) for first in range(4)]
    await until(lambda: len(acknowledged) >= 100, "fewer than 100 acknowledged")
    fresh.terminate()
    await asyncio.wait_for(asyncio.gather(reading, *publishing), STOP_TIMEOUT_S)
    assert set(acknowledged) <= set(received)
    for first in range(4):
        mine = [number for number in received if number % 4 == first]
        assert mine == sorted(mine)
    await has_ended(fresh)


async def fill(peers: Peers, slow: Peer, count: int) -> None:
    """Publish more than a reader's socket takes, without the reader reading."""
    await slow.subscribe("load")
    publisher = await peers.connect("", slow.version)
    for first in range(0, count, 100):
        packets = [Publish("load", b"%08d" % number + BODY) for number in range(first, first + 100)]
        await publisher.send_bytes(b"".join(encode_packet(packet, publisher.version) for packet in packets))
    await publisher.fence()
    await publisher.leave()


@both_versions
async def test_what_waits_for_a_slow_reader_still_leaves(
    fresh: RunningServer, peers: Peers, version: Version
) -> None:
    slow = await peers.connect("", version, is_slow=True)
    await fill(peers, slow, 8_000)
    fresh.terminate()
    await drains(fresh)
    assert fresh.process.poll() is None
    words = await slow.last_words()
    assert numbers_of(words) == list(range(8_000))
    assert [word for word in words if not isinstance(word, Publish)] == words_for(version)
    await slow.stream.close()
    await has_ended(fresh)


async def test_window_of_a_slow_reader_goes_on_while_it_drains(fresh: RunningServer) -> None:
    got: list[int] = []
    reader = await MqttClient.connect(port=fresh.port, messages_limit=1)
    await reader.subscribe("load", qos=1)
    async with MqttClient.connect(port=fresh.port) as publisher:
        for number in range(1_500):  # more than fit the window
            await publisher.publish("load", b"%08d" % number, qos=1)
    fresh.terminate()
    with pytest.raises(ConnectionLost) as ended:
        async for message in reader.messages:
            got.append(int(message.payload))
    assert ended.value.reason == ReasonCode.SERVER_SHUTTING_DOWN
    assert got == list(range(1_500))
    await reader.disconnect()
    await has_ended(fresh)


@both_versions
async def test_who_publishes_while_it_drains_is_sent_away_unacknowledged(
    fresh: RunningServer, peers: Peers, version: Version
) -> None:
    slow = await peers.connect("", version, is_slow=True)
    others = [await peers.connect("", version) for _ in range(3)]
    await fill(peers, slow, 8_000)
    fresh.terminate()
    await drains(fresh)
    for qos, other in enumerate(others):
        assert await other.fence() == []  # it may stay, as long as the others wait
        await other.send(Publish("late", b"", qos, packet_id=1 if qos else 0))
        assert await other.last_words() == words_for(version)
    assert len(numbers_of(await slow.last_words())) == 8_000


async def test_reader_that_is_stuck_does_not_hold_it_up_for_ever(start_server: StartServer) -> None:
    server = start_server({"shutdown_timeout_s": 1})
    peers = Peers(server.port)
    stuck = await peers.connect(is_slow=True)
    await fill(peers, stuck, 8_000)
    server.terminate()
    await has_ended(server)
    await peers.close()
