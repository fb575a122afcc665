"""MQTT 5.0, section 4.8: subscriptions, shared ones above all."""

import pytest

from penstock.wire.mqtt import PubAck, PubComp, Publish, PubRec, PubRel, ReasonCode
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, every_qos, payloads

WILD = ["$share/a+", "$share/+/a", "$share/#/a", "$share/a#/b", "$share/g+h/b", "$share/#"]
"""Shared filters with a wildcard in the name of the group."""


async def two_members(peers: Peers, name: str, qos: int, expiry: int) -> tuple[Peer, Peer, Publish]:
    """Two members of a group, the first of which has got a message and not answered it."""
    first, second = await peers.connect(name, expiry=expiry), await peers.connect()
    publisher = await peers.connect()
    await first.subscribe(f"$share/group/{name}", qos=qos)
    await publisher.publish(name, b"x", qos)
    message = await first.receive(Publish)
    await second.subscribe(f"$share/group/{name}", qos=qos)
    return first, second, message


@pytest.mark.parametrize("filter", ["$share/", "$share//", "$share//a", "$share//#", "$share///"])
@v5("4.8.2-1")
async def test_v5_mqtt_4_8_2_1_shared_filter_without_a_name_of_its_group_is_refused(
    peers: Peers, filter: str
) -> None:
    peer = await peers.connect()
    assert await peer.subscribe(filter) == (ReasonCode.TOPIC_FILTER_INVALID,)


@v5("4.8.2-1")
async def test_v5_mqtt_4_8_2_1_one_character_names_a_group(peers: Peers, name: str) -> None:
    members = [await peers.connect() for _ in range(2)]
    for member in members:
        assert await member.subscribe(f"$share/g/{name}") == (0,)
    publisher = await peers.connect()
    await publisher.publish(name, b"x")
    assert sorted([len(await member.fence()) for member in members]) == [0, 1]


@pytest.mark.parametrize("filter", [*WILD, "$share/g", "$share/g/"])
@v5("4.8.2-2")
async def test_v5_mqtt_4_8_2_2_group_with_a_wildcard_or_without_a_filter_is_refused(
    peers: Peers, filter: str
) -> None:
    peer = await peers.connect()
    assert await peer.subscribe(filter) == (ReasonCode.TOPIC_FILTER_INVALID,)


@v5("4.8.2-2")
async def test_v5_mqtt_4_8_2_2_filter_after_the_group_is_a_filter_like_any_other(
    peers: Peers, name: str
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    assert await peer.subscribe(f"$share/group/{name}/+/#", f"$share/group//{name}") == (0, 0)
    assert await peer.subscribe(f"$share/group/{name}/#/a") == (ReasonCode.TOPIC_FILTER_INVALID,)
    for topic in (f"{name}/a/b", f"/{name}", name, f"group/{name}/a"):
        await publisher.publish(topic, topic.encode())
    assert payloads(await peer.fence()) == [f"{name}/a/b".encode(), f"/{name}".encode()]


@every_qos
@v5("4.8.2-3")
async def test_v5_mqtt_4_8_2_3_every_member_gets_its_messages_within_the_qos_it_was_granted(
    peers: Peers, name: str, qos: int
) -> None:
    members = [await peers.connect() for _ in range(3)]
    for granted, member in enumerate(members):
        assert await member.subscribe(f"$share/group/{name}", qos=granted) == (granted,)
    publisher = await peers.connect()
    for number in range(9):
        await publisher.publish(name, b"%d" % number, qos)
    found: list[bytes] = []
    for granted, member in enumerate(members):
        messages = [packet for packet in await member.fence() if isinstance(packet, Publish)]
        assert {message.qos for message in messages} == {min(granted, qos)}
        found += payloads(messages)
    assert sorted(found) == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("is_received", [False, True], ids=["publish-open", "pubrel-open"])
@v5("4.8.2-4")
async def test_v5_mqtt_4_8_2_4_delivery_at_qos_2_is_completed_with_the_member_that_comes_back(
    peers: Peers, name: str, is_received: bool
) -> None:
    first, second, message = await two_members(peers, name, 2, FOR_EVER)
    if is_received:
        await first.send(PubRec(message.packet_id))
        await first.receive(PubRel)
    await first.leave()
    assert await second.fence() == []
    first = await peers.connect(name, clean=False, expiry=FOR_EVER)
    if not is_received:
        assert await first.receive(Publish) == Publish(name, b"x", 2, False, True, message.packet_id)
        await first.send(PubRec(message.packet_id))
    assert await first.receive(PubRel) == PubRel(message.packet_id)
    await first.send(PubComp(message.packet_id))
    assert [await first.fence(), await second.fence()] == [[], []]


@v5("4.8.2-5")
async def test_v5_mqtt_4_8_2_5_message_at_qos_2_of_a_session_that_ended_goes_to_nobody_else(
    peers: Peers, name: str
) -> None:
    first, second, _ = await two_members(peers, name, 2, FOR_EVER)
    await first.cut()
    assert not (await peers.connect(name, clean=True)).connack.session_present
    assert await second.fence() == []


@pytest.mark.parametrize(("qos", "kind"), [(1, PubAck), (2, PubRec)], ids=["PUBACK", "PUBREC"])
@v5("4.8.2-6")
async def test_v5_mqtt_4_8_2_6_message_that_a_member_refused_goes_to_nobody_else(
    peers: Peers, name: str, qos: int, kind: type[PubAck] | type[PubRec]
) -> None:
    first, second, message = await two_members(peers, name, qos, 0)
    await first.send(kind(message.packet_id, ReasonCode.UNSPECIFIED_ERROR))
    await first.leave()
    assert await second.fence() == []
