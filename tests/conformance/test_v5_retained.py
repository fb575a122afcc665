"""MQTT 5, section 3.3.1.3: retained messages."""

import pytest

from penstock.wire.mqtt import Packet, PacketProperties, Publish, Request
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import FOR_EVER, Peers, every_qos

with_or_without_properties = pytest.mark.parametrize(
    "properties",
    [PacketProperties(), PacketProperties(content_type="x", message_expiry=100)],
    ids=["", "with"],
)


def flagged(packets: list[Packet]) -> list[tuple[bytes, bool]]:
    """Payload and RETAIN of messages."""
    return [(packet.payload, packet.retain) for packet in packets if isinstance(packet, Publish)]


async def kept(peers: Peers, filter: str) -> list[bytes]:
    """What someone who comes now is told."""
    peer = await peers.connect()
    await peer.subscribe(filter)
    messages = flagged(await peer.fence())
    assert all(is_retained for _, is_retained in messages)
    return [payload for payload, _ in messages]


# What is kept


@v5("3.3.1-5")
@every_qos
async def test_v5_mqtt_3_3_1_5_retained_message_is_kept_in_place_of_the_older(
    peers: Peers, name: str, qos: int
) -> None:
    publisher = await peers.connect()
    for payload in (b"old", b"new"):
        await publisher.publish(name, payload, qos, retain=True)
    assert await kept(peers, name) == [b"new"]


@v5("3.3.1-5")
async def test_v5_mqtt_3_3_1_5_retained_message_is_kept_with_its_qos(peers: Peers, name: str) -> None:
    publisher, peer = await peers.connect(), await peers.connect()
    for qos in range(3):
        await publisher.publish(f"{name}/{qos}", b"x", qos, retain=True)
    await peer.subscribe(f"{name}/#", qos=2)
    got = {(message.topic, message.qos) for message in [await peer.receive(Publish) for _ in range(3)]}
    assert got == {(f"{name}/{qos}", qos) for qos in range(3)}


@v5("3.3.1-5")
async def test_v5_mqtt_3_3_1_5_retained_message_outlives_its_publisher(peers: Peers, name: str) -> None:
    publisher = await peers.connect()
    await publisher.publish(name, b"kept", retain=True)
    await publisher.leave()
    assert await kept(peers, name) == [b"kept"]


@v5("3.3.1-6", "3.3.1-7")
@every_qos
async def test_v5_mqtt_3_3_1_6_empty_retained_message_is_passed_on_and_erases_what_is_kept(
    peers: Peers, name: str, qos: int
) -> None:
    publisher, watcher = await peers.connect(), await peers.connect()
    await publisher.publish(name, b"kept", retain=True)
    await watcher.subscribe(Request(name, qos, retain_handling=2))
    await publisher.publish(name, b"", qos, retain=True)
    assert flagged(await watcher.fence()) == [(b"", False)]
    assert await kept(peers, name) == []


@v5("3.3.1-7")
async def test_v5_mqtt_3_3_1_7_empty_message_is_not_kept_where_nothing_was(peers: Peers, name: str) -> None:
    publisher = await peers.connect()
    await publisher.publish(name, b"", retain=True)
    assert await kept(peers, name) == []


@v5("3.3.1-8")
@pytest.mark.parametrize("payload", [b"other", b""])
@with_or_without_properties
async def test_v5_mqtt_3_3_1_8_message_that_is_not_retained_leaves_what_is_kept(
    peers: Peers, name: str, payload: bytes, properties: PacketProperties
) -> None:
    publisher = await peers.connect()
    await publisher.publish(name, b"kept", retain=True)
    await publisher.publish(name, payload, properties=properties)
    assert await kept(peers, name) == [b"kept"]


@v5("3.3.1-8")
@with_or_without_properties
async def test_v5_mqtt_3_3_1_8_message_that_is_not_retained_is_not_kept(
    peers: Peers, name: str, properties: PacketProperties
) -> None:
    publisher = await peers.connect()
    await publisher.publish(name, b"live", properties=properties)
    assert await kept(peers, name) == []


# Retain Handling


@v5("3.3.1-9")
async def test_v5_mqtt_3_3_1_9_each_subscribing_brings_what_is_kept(peers: Peers, name: str) -> None:
    publisher, peer = await peers.connect(), await peers.connect()
    for topic in ("a", "b"):
        await publisher.publish(f"{name}/{topic}", topic.encode(), retain=True)
    await publisher.publish(f"{name}x", b"of another topic", retain=True)
    for _ in range(2):
        await peer.subscribe(Request(f"{name}/+", retain_handling=0))
        assert sorted(flagged(await peer.fence())) == [(b"a", True), (b"b", True)]


@v5("3.3.1-10")
async def test_v5_mqtt_3_3_1_10_only_a_new_subscription_brings_what_is_kept(peers: Peers, name: str) -> None:
    publisher, peer = await peers.connect(), await peers.connect()
    await publisher.publish(name, b"kept", retain=True)
    wanted = Request(name, retain_handling=1)
    await peer.subscribe(wanted)
    assert flagged(await peer.fence()) == [(b"kept", True)]
    await peer.subscribe(Request(name, 1, retain_handling=1))
    assert await peer.fence() == []
    await peer.unsubscribe(name)
    await peer.subscribe(wanted)
    assert flagged(await peer.fence()) == [(b"kept", True)]


@v5("3.3.1-10")
async def test_v5_mqtt_3_3_1_10_subscription_of_an_older_connection_is_not_new(
    peers: Peers, name: str
) -> None:
    publisher, peer = await peers.connect(), await peers.connect(name, expiry=FOR_EVER)
    await peer.subscribe(name)
    await peer.leave()
    await publisher.publish(name, b"kept", retain=True)
    peer = await peers.connect(name, clean=False)
    await peer.subscribe(Request(name, retain_handling=1))
    assert await peer.fence() == []


@v5("3.3.1-11")
async def test_v5_mqtt_3_3_1_11_subscribing_without_what_is_kept_brings_live_messages_only(
    peers: Peers, name: str
) -> None:
    publisher, peer = await peers.connect(), await peers.connect()
    await publisher.publish(name, b"kept", retain=True)
    for _ in range(2):
        await peer.subscribe(Request(name, retain_handling=2))
        assert await peer.fence() == []
    await publisher.publish(name, b"live", retain=True)
    assert flagged(await peer.fence()) == [(b"live", False)]


# Retain As Published


@v5("3.3.1-12", "3.3.1-13")
@every_qos
@pytest.mark.parametrize("as_published", [False, True])
async def test_v5_mqtt_3_3_1_12_flag_is_passed_on_only_if_asked_for(
    peers: Peers, name: str, qos: int, as_published: bool
) -> None:
    publisher, peer = await peers.connect(), await peers.connect()
    await peer.subscribe(Request(name, qos, retain_as_published=as_published))
    for is_retained in (True, False):
        await publisher.publish(name, b"x", 1, retain=is_retained)
    assert flagged(await peer.fence()) == [(b"x", as_published), (b"x", False)]


@v5("3.3.1-13")
async def test_v5_mqtt_3_3_1_13_flag_reaches_who_asked_for_it_and_was_away(peers: Peers, name: str) -> None:
    publisher, peer = await peers.connect(), await peers.connect(name, expiry=FOR_EVER)
    await peer.subscribe(Request(name, 1, retain_as_published=True))
    await peer.leave()
    for is_retained in (True, False):
        await publisher.publish(name, b"x", retain=is_retained)
    peer = await peers.connect(name, clean=False)
    assert flagged(await peer.fence()) == [(b"x", True), (b"x", False)]
