"""MQTT 5.0, section 4.9: flow control, with the server as sender."""

import pytest

from penstock.wire.mqtt import (
    PacketProperties,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
)
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, payloads

assured = pytest.mark.parametrize("qos", [1, 2])


async def subscriber(peers: Peers, name: str, limit: int, qos: int) -> Peer:
    """A client that takes so many messages at QoS 1 and 2 at a time, and eight that are for it."""
    given = PacketProperties(receive_maximum=limit, session_expiry=FOR_EVER)
    peer, publisher = await peers.connect(name, properties=given), await peers.connect()
    await peer.subscribe(f"{name}/#", qos=qos)
    for number in range(8):
        await publisher.publish(f"{name}/t", b"%d" % number, qos)
    return peer


@assured
@pytest.mark.parametrize("limit", [1, 3, 8, 9])
@v5("4.9.0-1", "4.9.0-2")
async def test_v5_mqtt_4_9_0_1_no_more_is_on_its_way_than_the_client_takes(
    peers: Peers, name: str, limit: int, qos: int
) -> None:
    peer = await subscriber(peers, name, limit, qos)
    assert payloads(await peer.fence()) == [b"%d" % number for number in range(min(limit, 8))]


@v5("4.9.0-1")
async def test_v5_mqtt_4_9_0_1_every_connection_has_the_quota_it_asked_for(peers: Peers, name: str) -> None:
    peer = await subscriber(peers, name, 3, 1)
    assert len(await peer.fence()) == 3
    await peer.cut()
    given = PacketProperties(receive_maximum=2, session_expiry=FOR_EVER)
    peer = await peers.connect(name, clean=False, properties=given)
    assert payloads(await peer.fence()) == [b"0", b"1"]


@v5("4.9.0-2")
async def test_v5_mqtt_4_9_0_2_puback_makes_room_for_one_more(peers: Peers, name: str) -> None:
    peer = await subscriber(peers, name, 2, 1)
    one, two = [await peer.receive(Publish) for _ in range(2)]
    assert await peer.fence() == []
    await peer.send(PubAck(two.packet_id))
    assert payloads(await peer.fence()) == [b"2"]
    await peer.send(PubAck(one.packet_id, ReasonCode.UNSPECIFIED_ERROR))
    assert payloads(await peer.fence()) == [b"3"]


@v5("4.9.0-2")
async def test_v5_mqtt_4_9_0_2_pubcomp_makes_room_and_pubrec_does_not(peers: Peers, name: str) -> None:
    peer = await subscriber(peers, name, 1, 2)
    message = await peer.receive(Publish)
    await peer.send(PubRec(message.packet_id))
    assert await peer.fence() == [PubRel(message.packet_id)]
    await peer.send(PubComp(message.packet_id))
    assert payloads(await peer.fence()) == [b"1"]


@v5("4.9.0-2")
async def test_v5_mqtt_4_9_0_2_pubrec_that_refuses_makes_room(peers: Peers, name: str) -> None:
    peer = await subscriber(peers, name, 1, 2)
    message = await peer.receive(Publish)
    await peer.send(PubRec(message.packet_id, ReasonCode.UNSPECIFIED_ERROR))
    assert payloads(await peer.fence()) == [b"1"]


@v5("4.9.0-2")
async def test_v5_mqtt_4_9_0_2_answer_to_nothing_makes_no_room(peers: Peers, name: str) -> None:
    peer = await subscriber(peers, name, 1, 1)
    message = await peer.receive(Publish)
    await peer.send(PubAck(message.packet_id + 1), PubComp(message.packet_id + 2))
    assert await peer.fence() == []


@assured
@v5("4.9.0-3")
async def test_v5_mqtt_4_9_0_3_everything_else_is_answered_while_the_quota_is_used_up(
    peers: Peers, name: str, qos: int
) -> None:
    peer = await subscriber(peers, name, 1, qos)
    await peer.receive(Publish)
    await peer.send(PingReq())
    assert await peer.receive(PingResp) == PingResp()
    assert await peer.subscribe(f"other/{name}", qos=2) == (2,)
    assert await peer.unsubscribe(f"other/{name}") == (0,)
    for level in (1, 2):
        assert await peer.publish(f"unheard/{name}", b"", level) < 0x80
    assert await peer.fence() == []
