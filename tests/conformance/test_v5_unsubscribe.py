"""MQTT 5.0, sections 3.10 to 3.13: UNSUBSCRIBE, UNSUBACK and the ping."""

import pytest

from penstock.wire.mqtt import (
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
)
from tests.conformance.endings import ending_after, raw
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import FOR_EVER, Peers, payloads

UNSUBSCRIBE = 0xA2
REMOVED, NOT_THERE = ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED
TABLE = {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}
"""The codes of UNSUBACK."""


def unsubscribe_bytes(filter: bytes) -> bytes:
    """An UNSUBSCRIBE of one filter, whatever that is."""
    return raw(UNSUBSCRIBE, b"\x00\x01\x00" + len(filter).to_bytes(2, "big") + filter)


# The request


@pytest.mark.parametrize("flags", [0, 1, 3, 4, 10, 15])
@v5("3.10.1-1")
async def test_v5_mqtt_3_10_1_1_unsubscribe_with_other_flags_is_malformed(peers: Peers, flags: int) -> None:
    peer = await peers.connect()
    data = bytes((0xA0 | flags,)) + unsubscribe_bytes(b"a")[1:]
    assert await ending_after(peer, data) == ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("filter", [b"\xff", b"a/\xc0\x80", b"\xed\xa0\x80/b", b"cut\xe2\x82"], ids=repr)
@v5("3.10.3-1")
async def test_v5_mqtt_3_10_3_1_filter_that_is_not_utf_8_is_malformed(peers: Peers, filter: bytes) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, unsubscribe_bytes(filter)) == ReasonCode.MALFORMED_PACKET


@v5("3.10.3-2")
async def test_v5_mqtt_3_10_3_2_unsubscribe_without_a_filter_is_a_protocol_error(peers: Peers) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, raw(UNSUBSCRIBE, b"\x00\x01\x00")) == ReasonCode.PROTOCOL_ERROR


# What it does


@v5("3.10.4-1")
async def test_v5_mqtt_3_10_4_1_only_the_same_text_removes_a_subscription(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(f"{name}/+/b")
    others = [f"{name}/a/b", f"{name}/#", f"{name}/+/B", f"{name}/+/b/", f"/{name}/+/b", f"{name}/+"]
    assert await peer.unsubscribe(*others) == (NOT_THERE,) * len(others)
    await publisher.publish(f"{name}/a/b", b"still there", 0)
    assert payloads(await peer.fence()) == [b"still there"]
    assert await peer.unsubscribe(f"{name}/+/b") == (REMOVED,)


@v5("3.10.4-1")
async def test_v5_mqtt_3_10_4_1_shared_filters_are_told_apart_by_their_group(peers: Peers, name: str) -> None:
    peer = await peers.connect()
    await peer.subscribe(f"$share/one/{name}")
    assert await peer.unsubscribe(name, f"$share/two/{name}", f"$share/one/{name}") == (
        NOT_THERE,
        NOT_THERE,
        REMOVED,
    )


@pytest.mark.parametrize("qos", [0, 1, 2])
@v5("3.10.4-2")
async def test_v5_mqtt_3_10_4_2_nothing_more_comes_for_a_removed_filter(
    peers: Peers, name: str, qos: int
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(name, f"{name}/stays", qos=2)
    await peer.unsubscribe(name)
    await publisher.publish(name, b"gone", qos)
    await publisher.publish(f"{name}/stays", b"stays", qos)
    assert payloads(await peer.fence()) == [b"stays"]


@v5("3.10.4-3")
async def test_v5_mqtt_3_10_4_3_deliveries_that_have_begun_are_finished(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(name, expiry=FOR_EVER), await peers.connect()
    await peer.subscribe(name, qos=2)
    await publisher.publish(name, b"one", 1)
    await publisher.publish(name, b"two", 2)
    one, two = [await peer.receive(Publish) for _ in range(2)]
    await peer.unsubscribe(name)
    await peer.cut()
    peer = await peers.connect(name, clean=False, expiry=FOR_EVER)
    again = [await peer.receive(Publish) for _ in range(2)]
    assert [(each.packet_id, each.dup) for each in again] == [(one.packet_id, True), (two.packet_id, True)]
    await peer.send(PubAck(one.packet_id), PubRec(two.packet_id))
    assert await peer.receive(PubRel) == PubRel(two.packet_id)
    await peer.send(PubComp(two.packet_id))
    assert await peer.fence() == []


# The answer


@pytest.mark.parametrize("packet_id", [1, 77, 65_535])
@v5("3.10.4-4", "3.10.4-5")
async def test_v5_mqtt_3_10_4_4_unsubscribe_is_answered_under_its_packet_id(
    peers: Peers, name: str, packet_id: int
) -> None:
    peer = await peers.connect()
    await peer.subscribe(name)
    await peer.send(Unsubscribe(packet_id, (name,)), Unsubscribe(packet_id, (name,)))
    assert await peer.receive(UnsubAck) == UnsubAck(packet_id, (REMOVED,))
    assert await peer.receive(UnsubAck) == UnsubAck(packet_id, (NOT_THERE,))


@v5("3.10.4-6", "3.11.3-1", "3.11.3-2")
async def test_v5_mqtt_3_11_3_1_every_filter_gets_its_code_in_the_order_they_were_named(
    peers: Peers, name: str
) -> None:
    peer = await peers.connect()
    await peer.subscribe(f"{name}/a", f"{name}/b")
    answer = await peer.unsubscribe(f"{name}/x", f"{name}/b", f"{name}/b", f"{name}/y", f"{name}/a")
    assert answer == (NOT_THERE, REMOVED, NOT_THERE, NOT_THERE, REMOVED)
    assert set(answer) <= TABLE
    await peer.send(Publish(f"{name}/a"), Publish(f"{name}/b"))
    assert await peer.fence() == []


# The ping


@v5("3.12.4-1")
async def test_v5_mqtt_3_12_4_1_every_ping_is_answered(peers: Peers) -> None:
    peer = await peers.connect()
    await peer.send(PingReq(), PingReq(), PingReq())
    assert [await peer.take() for _ in range(3)] == [PingResp()] * 3
    assert await peer.fence() == []
