"""MQTT 5, section 3.3.2.3.3: Message Expiry Interval."""

import asyncio

import pytest

from penstock.wire.mqtt import PacketProperties, PubAck, Publish
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import FOR_EVER, Peers, every_qos


def living(seconds: int) -> PacketProperties:
    return PacketProperties(message_expiry=seconds)


def is_shorter(message: Publish) -> bool:
    """Whether a message that could wait for 100 seconds has a second or some less left."""
    return 80 < (message.properties.message_expiry or 0) < 100


@v5("3.3.2-5", "3.3.2-6")
async def test_v5_mqtt_3_3_2_5_message_that_waited_too_long_is_not_delivered(peers: Peers, name: str) -> None:
    publisher, peer = await peers.connect(), await peers.connect(name, expiry=FOR_EVER)
    await peer.subscribe(f"{name}/#", qos=2)
    await peer.leave()
    for seconds in (1, 100):
        for qos in (1, 2):
            await publisher.publish(f"{name}/{seconds}", b"x", qos, properties=living(seconds))
    await publisher.publish(f"{name}/ever", b"x")
    await asyncio.sleep(1.1)
    peer = await peers.connect(name, clean=False)
    got = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert [message.topic.removeprefix(f"{name}/") for message in got] == ["100", "100", "ever"]
    assert got[2].properties.message_expiry is None
    assert all(is_shorter(message) for message in got[:2])


@v5("3.3.2-5", "3.3.2-6")
async def test_v5_mqtt_3_3_2_5_retained_message_that_was_kept_too_long_is_not_delivered(
    peers: Peers, name: str
) -> None:
    publisher, late = await peers.connect(), await peers.connect()
    for seconds in (1, 100):
        await publisher.publish(f"{name}/{seconds}", b"x", retain=True, properties=living(seconds))
    await asyncio.sleep(1.1)
    await late.subscribe(f"{name}/#")
    (message,) = await late.fence()
    assert isinstance(message, Publish)
    assert message.topic == f"{name}/100"
    assert is_shorter(message)


@v5("3.3.2-5", "3.3.2-6")
async def test_v5_mqtt_3_3_2_5_message_that_waited_for_room_too_long_is_not_delivered(
    peers: Peers, name: str
) -> None:
    publisher = await peers.connect()
    peer = await peers.connect(properties=PacketProperties(receive_maximum=1))
    await peer.subscribe(f"{name}/#", qos=1)
    for seconds in (50, 1, 100):
        await publisher.publish(f"{name}/{seconds}", b"x", properties=living(seconds))
    first = await peer.receive(Publish)
    assert (first.topic, first.properties.message_expiry) == (f"{name}/50", 50)
    await asyncio.sleep(1.1)
    await peer.send(PubAck(first.packet_id))
    (second,) = await peer.fence()
    assert isinstance(second, Publish)
    assert second.topic == f"{name}/100"
    assert is_shorter(second)


@v5("3.3.2-6")
@every_qos
@pytest.mark.parametrize("seconds", [2, 1000, 0xFFFFFFFF])
async def test_v5_mqtt_3_3_2_6_message_that_did_not_wait_keeps_its_time(
    peers: Peers, name: str, qos: int, seconds: int
) -> None:
    publisher, peer = await peers.connect(), await peers.connect()
    await peer.subscribe(name, qos=2)
    await publisher.publish(name, b"x", qos, properties=living(seconds))
    assert (await peer.receive(Publish)).properties.message_expiry in (seconds, seconds - 1)
