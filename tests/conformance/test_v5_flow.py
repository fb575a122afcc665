"""MQTT 5, sections 3.1.2.11.3 and 3.3.4: Receive Maximum of both sides."""

import pytest

from penstock.wire.mqtt import (
    PacketProperties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
)
from tests.conformance.endings import ending_of
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, payloads
from tests.support.servers import RunningServer, StartServer

WINDOW = 3


@pytest.fixture(scope="module")
def narrow(start_server: StartServer) -> RunningServer:
    """A server that takes three unacknowledged messages of a client."""
    return start_server({"mqtt": {"receive_maximum": WINDOW}})


async def narrow_reader(peers: Peers, name: str) -> Peer:
    """A client that takes three unacknowledged messages, and wants a topic."""
    properties = PacketProperties(receive_maximum=WINDOW, session_expiry=FOR_EVER)
    peer = await peers.connect(name, properties=properties)
    await peer.subscribe(name, qos=2)
    return peer


# Towards the server


@v5("3.3.4-7")
@pytest.mark.parametrize("qos", [1, 2])
async def test_v5_mqtt_3_3_4_7_one_message_more_than_the_server_takes_ends_the_connection(
    narrow: RunningServer, peers: Peers, name: str, qos: int
) -> None:
    peer = await peers.connect(port=narrow.port)
    assert peer.connack.properties.receive_maximum == WINDOW
    await peer.send(*(Publish(name, b"x", 2, packet_id=number) for number in range(1, WINDOW + 1)))
    assert [(await peer.receive(PubRec)).packet_id for _ in range(WINDOW)] == [1, 2, 3]
    await peer.send(Publish(name, b"x", qos, packet_id=9))
    assert await ending_of(peer) == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


@v5("3.3.4-7")
async def test_v5_mqtt_3_3_4_7_message_that_is_done_with_makes_room(
    narrow: RunningServer, peers: Peers, name: str
) -> None:
    peer = await peers.connect(port=narrow.port)
    for number in range(1, 4 * WINDOW):
        await peer.publish(name, b"x", 1 + number % 2)
    await peer.send(*(Publish(name, b"x", 2, packet_id=number) for number in (101, 102, 103)))
    assert [(await peer.receive(PubRec)).packet_id for _ in range(3)] == [101, 102, 103]
    await peer.send(PubRel(102))
    assert await peer.receive(PubComp) == PubComp(102)
    await peer.send(Publish(name, b"x", 2, packet_id=104))
    assert (await peer.receive(PubRec)).packet_id == 104


@v5("3.3.4-7")
async def test_v5_mqtt_3_3_4_7_messages_at_qos_0_need_no_room(
    narrow: RunningServer, peers: Peers, name: str
) -> None:
    peer = await peers.connect(port=narrow.port)
    await peer.send(*(Publish(name, b"x", 2, packet_id=number) for number in (1, 2, 3)))
    await peer.send(*(Publish(name, b"x") for _ in range(10)))
    assert {type(packet) for packet in await peer.fence()} == {PubRec}


# Towards the client


@v5("3.3.4-9")
@pytest.mark.parametrize("qos", [1, 2])
async def test_v5_mqtt_3_3_4_9_no_more_are_on_their_way_than_the_client_takes(
    peers: Peers, name: str, qos: int
) -> None:
    peer, publisher = await narrow_reader(peers, name), await peers.connect()
    for number in range(WINDOW + 2):
        await publisher.publish(name, b"%d" % number, qos)
    assert payloads(await peer.fence()) == [b"0", b"1", b"2"]


@v5("3.3.4-9")
async def test_v5_mqtt_3_3_4_9_each_answer_makes_room_for_one_more(peers: Peers, name: str) -> None:
    peer, publisher = await narrow_reader(peers, name), await peers.connect()
    for number, qos in enumerate((1, 2, 2, 1, 1, 1)):
        await publisher.publish(name, b"%d" % number, qos)
    first, second, third = [await peer.receive(Publish) for _ in range(WINDOW)]
    await peer.send(PubAck(first.packet_id))
    assert payloads(await peer.fence()) == [b"3"]
    await peer.send(PubRec(second.packet_id))
    assert await peer.fence() == [PubRel(second.packet_id)]
    await peer.send(PubComp(second.packet_id))
    assert payloads(await peer.fence()) == [b"4"]
    await peer.send(PubRec(third.packet_id, ReasonCode.QUOTA_EXCEEDED))
    assert payloads(await peer.fence()) == [b"5"]


@v5("3.3.4-9")
async def test_v5_mqtt_3_3_4_9_what_is_sent_again_stays_within_what_the_client_takes_now(
    peers: Peers, name: str
) -> None:
    peer, publisher = await narrow_reader(peers, name), await peers.connect()
    for number in range(5):
        await publisher.publish(name, b"%d" % number)
    assert len(await peer.fence()) == WINDOW
    await peer.cut()
    peer = await peers.connect(name, clean=False, properties=PacketProperties(receive_maximum=1))
    for number in range(5):
        (message,) = await peer.fence()
        assert isinstance(message, Publish)
        assert (message.payload, message.dup) == (b"%d" % number, number < WINDOW)
        await peer.send(PubAck(message.packet_id))


@v5("3.3.4-10")
async def test_v5_mqtt_3_3_4_10_other_packets_are_not_held_back(peers: Peers, name: str) -> None:
    peer, publisher = await narrow_reader(peers, name), await peers.connect()
    for number in range(WINDOW + 1):
        await publisher.publish(name, b"%d" % number, 2)
    got = await peer.fence()  # pings are answered
    assert payloads(got) == [b"0", b"1", b"2"]
    await peer.subscribe(f"{name}/other", qos=1)
    await peer.unsubscribe(f"{name}/other")
    await peer.publish(f"{name}/unheard", b"x", 1)
    await peer.publish(f"{name}/unheard", b"x", 2)
    assert await peer.fence() == []
