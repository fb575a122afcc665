"""MQTT 5, section 3.3: PUBLISH, its flags, its topic, and how it is answered."""

import pytest

from penstock.wire.mqtt import (
    PacketProperties,
    PubAck,
    Publish,
    PubRec,
    ReasonCode,
    Request,
)
from tests.conformance.endings import ending_after, ending_of
from tests.conformance.statements import v5
from tests.conformance.v5_bytes import publish
from tests.doors.mqtt.peers import FOR_EVER, Peers, every_qos, payloads

MALFORMED = ReasonCode.MALFORMED_PACKET


# Duplicates and QoS


@v5("3.3.1-2")
async def test_v5_mqtt_3_3_1_2_duplicate_at_qos_0_is_malformed(peers: Peers, name: str) -> None:
    assert await ending_after(await peers.connect(), publish(name, first=0x38)) == MALFORMED


@v5("3.3.1-2", "3.3.1-3")
@every_qos
async def test_v5_mqtt_3_3_1_3_duplicate_flag_of_the_publisher_is_not_passed_on(
    peers: Peers, name: str, qos: int
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(name, qos=qos)
    await publisher.send(Publish(name, b"1", 1, dup=True, packet_id=1))
    await publisher.send(Publish(name, b"2", 2, dup=True, packet_id=2))
    first, second = await peer.receive(Publish), await peer.receive(Publish)
    assert [(message.payload, message.dup) for message in (first, second)] == [(b"1", False), (b"2", False)]


@v5("3.3.1-3")
async def test_v5_mqtt_3_3_1_3_server_marks_its_own_resend_of_what_came_once(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(name, expiry=FOR_EVER), await peers.connect()
    await peer.subscribe(name, qos=1)
    await publisher.publish(name, b"x")
    assert not (await peer.receive(Publish)).dup
    await peer.cut()
    peer = await peers.connect(name, clean=False)
    assert (await peer.receive(Publish)).dup


@v5("3.3.1-4")
@pytest.mark.parametrize("first", [0x36, 0x37, 0x3E, 0x3F])
async def test_v5_mqtt_3_3_1_4_qos_3_is_malformed(peers: Peers, name: str, first: int) -> None:
    data = publish(name, first=first, packet_id=b"\x00\x01")
    assert await ending_after(await peers.connect(), data) == MALFORMED


# The topic


@v5("3.3.2-1")
@pytest.mark.parametrize("topic", [b"a\xff", b"\xed\xbf\xbf", b"a\x00b"])
@pytest.mark.parametrize("qos", [0, 1])
async def test_v5_mqtt_3_3_2_1_topic_that_is_no_string_is_malformed(
    peers: Peers, topic: bytes, qos: int
) -> None:
    data = publish(topic, first=0x30 | qos << 1, packet_id=b"\x00\x01" * qos)
    assert await ending_after(await peers.connect(), data) == MALFORMED


@v5("3.3.2-1")
async def test_v5_mqtt_3_3_2_1_topic_longer_than_the_packet_is_malformed(peers: Peers) -> None:
    assert await ending_after(await peers.connect(), b"\x30\x05\x00\x09abc") == MALFORMED


@v5("3.3.2-2")
@pytest.mark.parametrize("topic", ["{}/+", "{}/#", "#", "+", "{}/a+b", "{}#"])
@every_qos
async def test_v5_mqtt_3_3_2_2_topic_with_a_wildcard_is_invalid(
    peers: Peers, name: str, topic: str, qos: int
) -> None:
    peer = await peers.connect()
    await peer.send(Publish(topic.format(name), b"x", qos, packet_id=qos))
    assert await ending_of(peer) == ReasonCode.TOPIC_NAME_INVALID


@v5("3.3.2-2", "3.3.2-3")
@pytest.mark.parametrize(
    ("filter", "wanted"),
    [
        ("{}/+", ["{}/a", "{}/"]),
        ("{}/#", ["{}", "{}/a", "{}/a/b", "{}/"]),
        ("{}/+/b", ["{}/a/b"]),
        ("{}/a", ["{}/a"]),
        ("+/a/b", ["{}/a/b"]),
    ],
)
async def test_v5_mqtt_3_3_2_3_topic_of_a_delivery_is_the_publishers_and_fits_the_filter(
    peers: Peers, name: str, filter: str, wanted: list[str]
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(filter.format(name), qos=1)
    for topic in ("{}", "{}/a", "{}/a/b", "{}/", "{}x/a"):
        await publisher.publish(topic.format(name), b"x")
    messages = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    mine = [message.topic for message in messages if message.topic.startswith(name)]
    assert mine == [topic.format(name) for topic in wanted]


# The answer


@v5("3.3.4-1")
async def test_v5_mqtt_3_3_4_1_answer_depends_on_the_qos(peers: Peers, name: str) -> None:
    watcher, publisher = await peers.connect(), await peers.connect()
    await watcher.subscribe(name)
    await publisher.send(Publish(name, b"0"))
    assert await publisher.fence() == []
    await publisher.send(Publish(name, b"1", 1, packet_id=7))
    assert await publisher.receive(PubAck) == PubAck(7)
    await publisher.send(Publish(name, b"2", 2, packet_id=8))
    assert await publisher.receive(PubRec) == PubRec(8)
    assert await publisher.fence() == []
    assert payloads(await watcher.fence()) == [b"0", b"1", b"2"]


@v5("3.3.4-1")
async def test_v5_mqtt_3_3_4_1_publisher_is_told_that_nobody_subscribed(peers: Peers, name: str) -> None:
    publisher = await peers.connect()
    assert await publisher.publish(name, b"x") == ReasonCode.NO_MATCHING_SUBSCRIBERS
    watcher = await peers.connect()
    await watcher.subscribe(name)
    assert await publisher.publish(name, b"x") == ReasonCode.SUCCESS


@v5("3.3.4-1")
@pytest.mark.parametrize("qos", [1, 2])
async def test_v5_mqtt_3_3_4_1_refused_message_is_answered_with_its_reason(peers: Peers, qos: int) -> None:
    publisher = await peers.connect()
    assert await publisher.publish("$SYS/mine", b"x", qos) == ReasonCode.NOT_AUTHORIZED
    assert await publisher.publish("x" * 5_000, b"x", qos) == ReasonCode.TOPIC_NAME_INVALID


# Overlapping filters


@v5("3.3.4-2")
@every_qos
async def test_v5_mqtt_3_3_4_2_overlapping_filters_bring_the_highest_qos_among_them(
    peers: Peers, name: str, qos: int
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(Request(f"{name}/#", 0), Request(f"{name}/+", qos), Request(f"{name}/a", 0))
    await publisher.publish(f"{name}/a", b"x", 2)
    copies = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert max(copy.qos for copy in copies) == qos
    assert len(copies) == 1


@v5("3.3.4-2")
async def test_v5_mqtt_3_3_4_2_filter_that_does_not_match_does_not_raise_the_qos(
    peers: Peers, name: str
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(Request(f"{name}/#", 1), Request(f"{name}/b", 2))
    await publisher.publish(f"{name}/a", b"x", 2)
    assert (await peer.receive(Publish)).qos == 1


# Subscription identifiers


def identified(number: int) -> PacketProperties:
    return PacketProperties(subscription_ids=(number,))


@v5("3.3.4-3", "3.3.4-4")
async def test_v5_mqtt_3_3_4_4_one_copy_names_all_filters_that_match_and_have_an_identifier(
    peers: Peers, name: str
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(f"{name}/#", properties=identified(1))
    await peer.subscribe(f"{name}/+", properties=identified(268_435_455))
    await peer.subscribe(f"{name}/a")
    await peer.subscribe(f"{name}/b", properties=identified(3))
    await publisher.publish(f"{name}/a", b"x")
    (copy,) = await peer.fence()
    assert isinstance(copy, Publish)
    assert sorted(copy.properties.subscription_ids) == [1, 268_435_455]


@v5("3.3.4-3")
@every_qos
async def test_v5_mqtt_3_3_4_3_message_names_the_identifier_of_its_subscription(
    peers: Peers, name: str, qos: int
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(name, qos=qos, properties=identified(200))
    await publisher.publish(name, b"x", qos)
    assert (await peer.receive(Publish)).properties.subscription_ids == (200,)


@v5("3.3.4-3")
async def test_v5_mqtt_3_3_4_3_message_names_no_identifier_where_there_is_none(
    peers: Peers, name: str
) -> None:
    peer, other, publisher = [await peers.connect() for _ in range(3)]
    await peer.subscribe(name, qos=1)
    await other.subscribe(name, qos=1, properties=identified(5))
    await publisher.publish(name, b"x")
    assert (await peer.receive(Publish)).properties.subscription_ids == ()


@v5("3.3.4-3")
async def test_v5_mqtt_3_3_4_3_identifier_is_remembered_with_the_session(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(name, expiry=FOR_EVER), await peers.connect()
    await peer.subscribe(name, qos=1, properties=identified(5))
    await peer.leave()
    await publisher.publish(name, b"owed")
    peer = await peers.connect(name, clean=False)
    assert (await peer.receive(Publish)).properties.subscription_ids == (5,)


@v5("3.3.4-5")
async def test_v5_mqtt_3_3_4_5_copies_of_a_retained_message_name_their_own_subscription(
    peers: Peers, name: str
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await publisher.publish(f"{name}/a", b"kept", retain=True)
    for number, filter in enumerate(("#", "+", "a"), 1):
        await peer.subscribe(f"{name}/{filter}", properties=identified(number))
        copy = await peer.receive(Publish)
        assert (copy.payload, copy.properties.subscription_ids) == (b"kept", (number,))


@v5("3.3.4-5")
async def test_v5_mqtt_3_3_4_5_identifiers_of_all_copies_are_those_of_the_subscriptions(
    peers: Peers, name: str
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(name, properties=identified(1))
    await peer.subscribe(f"$share/group/{name}", properties=identified(2))
    await publisher.publish(name, b"x")
    copies = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert sorted(id for copy in copies for id in copy.properties.subscription_ids) == [1, 2]


@v5("3.3.4-6")
@every_qos
async def test_v5_mqtt_3_3_4_6_subscription_identifier_from_a_client_is_a_protocol_error(
    peers: Peers, name: str, qos: int
) -> None:
    peer = await peers.connect()
    await peer.send(Publish(name, b"x", qos, packet_id=qos, properties=identified(1)))
    assert await ending_of(peer) == ReasonCode.PROTOCOL_ERROR
