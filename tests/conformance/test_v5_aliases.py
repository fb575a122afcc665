"""MQTT 5, sections 3.1.2.11.5 and 3.3.2.3.4: topic aliases of both sides."""

import pytest

from penstock.wire.mqtt import Packet, PacketProperties, PubAck, Publish, ReasonCode
from tests.conformance.endings import ending_after, ending_of, size_of
from tests.conformance.statements import v5
from tests.conformance.v5_bytes import publish
from tests.doors.mqtt.peers import FOR_EVER, Peers, every_qos
from tests.support.servers import RunningServer, StartServer

OFFERED = 10
"""The server's Topic Alias Maximum."""


@pytest.fixture(scope="module")
def without(start_server: StartServer) -> RunningServer:
    """A server that takes no aliases."""
    return start_server({"mqtt": {"topic_alias_maximum": 0}})


def aliased(topic: str, alias: int, payload: bytes = b"x", qos: int = 0) -> Publish:
    return Publish(topic, payload, qos, packet_id=qos, properties=PacketProperties(topic_alias=alias))


def resolved(packets: list[Packet], aliases: dict[int, str]) -> list[str]:
    """The topics of messages, as a client understands them that was told these aliases before."""
    topics: list[str] = []
    for packet in packets:
        assert isinstance(packet, Publish), packet
        alias = packet.properties.topic_alias
        if alias is not None and packet.topic:
            aliases[alias] = packet.topic
        topics.append(packet.topic or aliases[alias or 0])
    return topics


def aliases_of(packets: list[Packet]) -> set[int | None]:
    return {packet.properties.topic_alias for packet in packets if isinstance(packet, Publish)}


# Towards the server


@v5("3.3.2-12")
async def test_v5_mqtt_3_3_2_12_server_takes_every_alias_up_to_its_maximum(peers: Peers, name: str) -> None:
    publisher, watcher = await peers.connect(), await peers.connect()
    assert publisher.connack.properties.topic_alias_maximum == OFFERED
    await watcher.subscribe(f"{name}/+")
    numbers = range(1, OFFERED + 1)
    await publisher.send(*(aliased(f"{name}/{number}", number) for number in numbers))
    await publisher.send(*(aliased("", number) for number in numbers))
    assert await publisher.fence() == []
    topics = [packet.topic for packet in await watcher.fence() if isinstance(packet, Publish)]
    assert topics == [f"{name}/{number}" for number in numbers] * 2


@v5("3.3.2-12")
@pytest.mark.parametrize("qos", [1, 2])
async def test_v5_mqtt_3_3_2_12_alias_stands_for_the_topic_it_was_last_given(
    peers: Peers, name: str, qos: int
) -> None:
    publisher, watcher = await peers.connect(), await peers.connect()
    await watcher.subscribe(f"{name}/+", qos=2)
    for topic in (f"{name}/1", "", f"{name}/2", ""):
        await publisher.send(Publish(topic, b"x", 1, packet_id=1, properties=aliased("", 1).properties))
        await publisher.receive(PubAck)
    await publisher.send(aliased("", 1, qos=qos))
    got = [await watcher.receive(Publish) for _ in range(5)]
    assert [message.topic[-1] for message in got] == ["1", "1", "2", "2", "2"]
    assert aliases_of([*got]) == {None}


@v5("3.3.2-9", "3.2.2-17")
@pytest.mark.parametrize("alias", [OFFERED + 1, 65_535])
async def test_v5_mqtt_3_3_2_9_alias_above_the_maximum_ends_the_connection(
    peers: Peers, name: str, alias: int
) -> None:
    peer = await peers.connect()
    await peer.send(aliased(name, alias))
    assert await ending_of(peer) == ReasonCode.TOPIC_ALIAS_INVALID


@v5("3.2.2-18")
async def test_v5_mqtt_3_2_2_18_alias_ends_the_connection_where_the_server_takes_none(
    without: RunningServer, peers: Peers, name: str
) -> None:
    peer = await peers.connect(port=without.port)
    assert not peer.connack.properties.topic_alias_maximum
    await peer.send(aliased(name, 1))
    assert await ending_of(peer) == ReasonCode.TOPIC_ALIAS_INVALID


@v5("3.3.2-8")
@pytest.mark.parametrize("topic", ["a/topic", ""])
async def test_v5_mqtt_3_3_2_8_alias_zero_ends_the_connection(peers: Peers, topic: str) -> None:
    data = publish(topic, b"\x23\x00\x00")
    assert await ending_after(await peers.connect(), data) == ReasonCode.TOPIC_ALIAS_INVALID


@v5("3.3.2-7")
async def test_v5_mqtt_3_3_2_7_alias_of_a_client_ends_with_its_connection(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, expiry=FOR_EVER)
    await peer.send(aliased(name, 1))
    await peer.leave()
    peer = await peers.connect(name, clean=False, expiry=FOR_EVER)
    await peer.send(aliased("", 1))
    assert await ending_of(peer) == ReasonCode.PROTOCOL_ERROR


@v5("3.3.2-7")
async def test_v5_mqtt_3_3_2_7_alias_of_a_client_is_its_own(peers: Peers, name: str) -> None:
    one, other = await peers.connect(), await peers.connect()
    await one.send(aliased(name, 1))
    await one.fence()
    await other.send(aliased("", 1))
    assert await ending_of(other) == ReasonCode.PROTOCOL_ERROR


# Towards the client


@v5("3.1.2-26", "3.3.2-11", "3.3.2-8")
@every_qos
@pytest.mark.parametrize("maximum", [1, 3, 65_535])
async def test_v5_mqtt_3_1_2_26_server_stays_within_the_aliases_a_client_takes(
    peers: Peers, name: str, qos: int, maximum: int
) -> None:
    publisher = await peers.connect()
    peer = await peers.connect(properties=PacketProperties(topic_alias_maximum=maximum))
    await peer.subscribe(f"{name}/#", qos=qos)
    topics = [f"{name}/{number}" for number in (1, 2, 2, 3, 4, 5, 1, 1, 5, 2)]
    for topic in topics:
        await publisher.publish(topic, b"x", qos)
    got = await peer.fence()
    assert resolved(got, {}) == topics
    used = aliases_of(got) - {None}
    assert used
    assert all(0 < (alias or 0) <= maximum for alias in used)


@v5("3.1.2-26")
async def test_v5_mqtt_3_1_2_26_topic_is_told_once_and_then_named_by_its_alias(
    peers: Peers, name: str
) -> None:
    publisher = await peers.connect()
    peer = await peers.connect(properties=PacketProperties(topic_alias_maximum=10))
    await peer.subscribe(f"{name}/#", qos=1)
    for _ in range(3):
        await publisher.publish(f"{name}/a", b"x")
    first, *later = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert first.topic == f"{name}/a"
    assert [message.topic for message in later] == ["", ""]
    assert len(aliases_of([first, *later])) == 1


@v5("3.1.2-27")
@pytest.mark.parametrize("maximum", [None, 0])
@every_qos
async def test_v5_mqtt_3_1_2_27_client_that_takes_no_aliases_is_sent_none(
    peers: Peers, name: str, maximum: int | None, qos: int
) -> None:
    publisher = await peers.connect()
    peer = await peers.connect(properties=PacketProperties(topic_alias_maximum=maximum))
    await peer.subscribe(f"{name}/#", qos=qos)
    await publisher.send(aliased(f"{name}/a", 1), aliased("", 1))
    for _ in range(2):
        await publisher.publish(f"{name}/a", b"x", qos)
    got = await peer.fence()
    assert [packet.topic for packet in got if isinstance(packet, Publish)] == [f"{name}/a"] * 4
    assert aliases_of(got) == {None}


@v5("3.3.2-7")
async def test_v5_mqtt_3_3_2_7_alias_of_the_server_ends_with_the_connection(peers: Peers, name: str) -> None:
    publisher = await peers.connect()
    properties = PacketProperties(topic_alias_maximum=10, session_expiry=FOR_EVER)
    peer = await peers.connect(name, properties=properties)
    await peer.subscribe(f"{name}/#", qos=1)
    for _ in range(2):
        await publisher.publish(f"{name}/a", b"x")
    assert resolved(await peer.fence(), {}) == [f"{name}/a"] * 2
    await peer.cut()
    await publisher.publish(f"{name}/a", b"x")
    peer = await peers.connect(name, clean=False, properties=properties)
    assert resolved(await peer.fence(), {}) == [f"{name}/a"] * 3


@v5("3.1.2-24", "3.1.2-26")
async def test_v5_mqtt_3_1_2_24_message_with_an_alias_is_no_larger_than_the_client_takes(
    peers: Peers, name: str
) -> None:
    publisher, limit = await peers.connect(), 100
    properties = PacketProperties(topic_alias_maximum=10, maximum_packet_size=limit)
    peer = await peers.connect(properties=properties)
    await peer.subscribe(name)
    largest = limit - size_of(Publish(name))
    sizes = range(largest, largest - 8, -1)
    for size in sizes:
        await publisher.publish(name, bytes(size))
    got = await peer.fence()
    assert [len(packet.payload) for packet in got if isinstance(packet, Publish)] == list(sizes)
    assert all(size_of(packet) <= limit for packet in got)
    assert resolved(got, {}) == [name] * len(sizes)
