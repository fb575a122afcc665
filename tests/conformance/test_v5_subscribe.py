"""MQTT 5.0, sections 3.8 and 3.9: SUBSCRIBE and SUBACK."""

from pathlib import Path

import pytest

from penstock.wire.mqtt import (
    Packet,
    PacketProperties,
    Publish,
    ReasonCode,
    Request,
    SubAck,
    Subscribe,
)
from tests.conformance.endings import ending_after, ending_of, raw
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import Peers, every_qos, payloads
from tests.support.servers import RunningServer, StartServer

SUBSCRIBE = 0x82
TABLE = {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}
"""The codes of SUBACK."""


@pytest.fixture(scope="module")
def strict(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """Guests may read what is below `open`, by at most four filters."""
    acl: Path = tmp_path_factory.mktemp("access") / "acl"
    acl.write_text("anonymous\nsubscribe open/#\n", encoding="utf-8")
    access = {"acl_file": str(acl), "allow_anonymous": True}
    return start_server({"access": access, "sessions": {"max_subscriptions": 4}})


def subscribe_bytes(filter: bytes, options: int) -> bytes:
    """A SUBSCRIBE of one filter, whatever that is."""
    return raw(SUBSCRIBE, b"\x00\x01\x00" + len(filter).to_bytes(2, "big") + filter + bytes((options,)))


def messages(packets: list[Packet]) -> list[tuple[bytes, int, tuple[int, ...]]]:
    """Payload, QoS and subscription identifiers of messages."""
    return [
        (packet.payload, packet.qos, packet.properties.subscription_ids)
        for packet in packets
        if isinstance(packet, Publish)
    ]


# The request


@pytest.mark.parametrize("flags", [0, 1, 3, 4, 10, 15])
@v5("3.8.1-1")
async def test_v5_mqtt_3_8_1_1_subscribe_with_other_flags_is_malformed(
    peers: Peers, name: str, flags: int
) -> None:
    peer = await peers.connect()
    data = bytes((0x80 | flags,)) + subscribe_bytes(name.encode(), 0)[1:]
    assert await ending_after(peer, data) == ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("filter", [b"\xff", b"a/\xc0\x80", b"\xed\xa0\x80/b", b"cut\xe2\x82"], ids=repr)
@v5("3.8.3-1")
async def test_v5_mqtt_3_8_3_1_filter_that_is_not_utf_8_is_malformed(peers: Peers, filter: bytes) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, subscribe_bytes(filter, 0)) == ReasonCode.MALFORMED_PACKET


@v5("3.8.3-2")
async def test_v5_mqtt_3_8_3_2_subscribe_without_a_filter_is_a_protocol_error(peers: Peers) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, raw(SUBSCRIBE, b"\x00\x01\x00")) == ReasonCode.PROTOCOL_ERROR


@v5("3.8.3-2")
async def test_v5_mqtt_3_8_3_2_filter_without_options_is_malformed(peers: Peers) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, raw(SUBSCRIBE, b"\x00\x01\x00\x00\x01a")) == ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("options", [0x40, 0x80, 0xC0, 0x81], ids=hex)
@v5("3.8.3-5")
async def test_v5_mqtt_3_8_3_5_reserved_options_are_malformed(peers: Peers, name: str, options: int) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, subscribe_bytes(name.encode(), options)) == ReasonCode.MALFORMED_PACKET


# No Local


@every_qos
@v5("3.8.3-3")
async def test_v5_mqtt_3_8_3_3_no_local_keeps_a_clients_own_messages_away(
    peers: Peers, name: str, qos: int
) -> None:
    peer, other = await peers.connect(), await peers.connect()
    await peer.subscribe(Request(name, 2, no_local=True))
    await peer.publish(name, b"mine", qos)
    await other.publish(name, b"theirs", qos)
    assert payloads(await peer.fence()) == [b"theirs"]


@v5("3.8.3-3")
async def test_v5_mqtt_3_8_3_3_without_no_local_a_client_hears_itself(peers: Peers, name: str) -> None:
    peer = await peers.connect()
    await peer.subscribe(name)
    await peer.send(Publish(name, b"mine"))
    assert payloads(await peer.fence()) == [b"mine"]


@v5("3.8.3-3")
async def test_v5_mqtt_3_8_3_3_no_local_holds_for_what_was_retained(peers: Peers, name: str) -> None:
    peer, other = await peers.connect(), await peers.connect()
    await peer.publish(f"{name}/mine", b"mine", retain=True)
    await other.publish(f"{name}/theirs", b"theirs", retain=True)
    await peer.subscribe(Request(f"{name}/+", 1, no_local=True))
    assert payloads(await peer.fence() + await peer.fence()) == [b"theirs"]


@v5("3.8.3-4")
async def test_v5_mqtt_3_8_3_4_no_local_on_a_shared_subscription_is_a_protocol_error(
    peers: Peers, name: str
) -> None:
    peer = await peers.connect()
    await peer.send(Subscribe(1, (Request(f"$share/group/{name}", no_local=True),)))
    assert await ending_of(peer) == ReasonCode.PROTOCOL_ERROR


# The answer


@pytest.mark.parametrize("packet_id", [1, 77, 65_535])
@v5("3.8.4-1", "3.8.4-2")
async def test_v5_mqtt_3_8_4_1_subscribe_is_answered_under_its_packet_id(
    peers: Peers, name: str, packet_id: int
) -> None:
    peer = await peers.connect()
    await peer.send(Subscribe(packet_id, (Request(name),)))
    assert await peer.receive(SubAck) == SubAck(packet_id, (0,))


@v5("3.8.4-5")
async def test_v5_mqtt_3_8_4_5_filters_act_like_requests_one_after_the_other_with_one_answer(
    peers: Peers, name: str
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.send(Subscribe(3, (Request(name, 2), Request(f"{name}/b", 0), Request(name, 1))))
    assert await peer.receive(SubAck) == SubAck(3, (2, 0, 1))
    await publisher.publish(name, b"a", 2)
    await publisher.publish(f"{name}/b", b"b", 2)
    assert messages(await peer.fence()) == [(b"a", 1, ()), (b"b", 0, ())]


@v5("3.8.4-6", "3.8.4-7", "3.9.3-1", "3.9.3-2")
async def test_v5_mqtt_3_9_3_1_every_filter_gets_its_code_in_the_order_they_were_asked(
    strict: RunningServer, peers: Peers
) -> None:
    peer = await peers.connect(port=strict.port)
    wanted = {
        Request("open/2", 2): ReasonCode.GRANTED_QOS_2,
        Request("open#", 1): ReasonCode.TOPIC_FILTER_INVALID,
        Request("open/0", 0): ReasonCode.SUCCESS,
        Request("closed", 0): ReasonCode.NOT_AUTHORIZED,
        Request("open/1", 1): ReasonCode.GRANTED_QOS_1,
        Request("open/#", 2): ReasonCode.GRANTED_QOS_2,
        Request("open/3", 0): ReasonCode.QUOTA_EXCEEDED,
    }
    answer = await peer.subscribe(*wanted)
    assert list(answer) == list(wanted.values())
    assert set(answer) <= TABLE


@v5("3.8.4-7")
async def test_v5_mqtt_3_8_4_7_filter_that_was_refused_brings_nothing(
    strict: RunningServer, peers: Peers
) -> None:
    peer = await peers.connect(port=strict.port)
    assert await peer.subscribe("closed/+") == (ReasonCode.NOT_AUTHORIZED,)
    assert await peer.unsubscribe("closed/+") == (ReasonCode.NO_SUBSCRIPTION_EXISTED,)


# What the subscription brings


@every_qos
@v5("3.8.4-7", "3.8.4-8")
async def test_v5_mqtt_3_8_4_8_quality_is_the_lower_of_published_and_granted(
    peers: Peers, name: str, qos: int
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    assert await peer.subscribe(name, qos=qos) == (qos,)
    for published in range(3):
        await publisher.publish(name, b"x", published)
        assert (await peer.receive(Publish)).qos == min(published, qos)


@v5("3.8.4-3")
async def test_v5_mqtt_3_8_4_3_same_filter_again_replaces_the_subscription(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(name, qos=2, properties=PacketProperties(subscription_ids=(7,)))
    await peer.subscribe(name, qos=1, properties=PacketProperties(subscription_ids=(8,)))
    await publisher.publish(name, b"x", 2)
    assert messages(await peer.fence()) == [(b"x", 1, (8,))]
    assert await peer.unsubscribe(name, name) == (0x00, 0x11)


@v5("3.8.4-3")
async def test_v5_mqtt_3_8_4_3_shared_filter_replaces_no_other(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(name, qos=1)
    await peer.subscribe(f"$share/group/{name}", qos=1)
    await publisher.publish(name, b"x")
    assert payloads(await peer.fence()) == [b"x", b"x"]


@pytest.mark.parametrize(("handling", "again"), [(0, [b"kept"]), (1, []), (2, [])])
@v5("3.8.4-4")
async def test_v5_mqtt_3_8_4_4_replacing_brings_retained_messages_again_if_asked_for(
    peers: Peers, name: str, handling: int, again: list[bytes]
) -> None:
    peer = await peers.connect()
    await peer.publish(name, b"kept", retain=True)
    await peer.subscribe(name)
    assert payloads([await peer.receive(Publish)]) == [b"kept"]
    await peer.subscribe(Request(name, retain_handling=handling))
    assert payloads(await peer.fence() + await peer.fence()) == again


@v5("3.8.4-4")
async def test_v5_mqtt_3_8_4_4_replacing_loses_no_live_message(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(name)
    for number in range(50):
        await publisher.send(Publish(name, b"%d" % number))
        await peer.send(Subscribe(7, (Request(name, number % 2),)))
    await publisher.fence()
    got = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert payloads(got) == [b"%d" % number for number in range(50)]
