"""MQTT 5.0, sections 4.1 to 4.5: session state, transport, and delivery by quality of service."""

import pytest

from penstock.wire.mqtt import (
    PacketProperties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    Request,
    Version,
    Will,
    encode_packet,
)
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, every_qos, payloads
from tests.support.servers import RunningServer, StartServer

assured = pytest.mark.parametrize("qos", [1, 2])


@pytest.fixture(scope="module")
def brisk(start_server: StartServer) -> RunningServer:
    """A server that looks often for what has expired."""
    return start_server({"reaper_interval_ms": 20})


async def begin(peers: Peers, name: str, qos: int, *bodies: bytes) -> tuple[Peer, list[Publish]]:
    """A client with a session to come back to, and messages that it got but has not answered."""
    peer, publisher = await peers.connect(name, expiry=FOR_EVER), await peers.connect()
    await peer.subscribe(name, qos=qos)
    for body in bodies:
        await publisher.publish(name, body, qos)
    return peer, [await peer.receive(Publish) for _ in bodies]


async def come_back(peers: Peers, peer: Peer, name: str) -> Peer:
    """The same client on a new connection after the last one broke."""
    await peer.cut()
    peer = await peers.connect(name, clean=False, expiry=FOR_EVER)
    assert peer.connack.session_present
    return peer


# Session state


@v5("4.1.0-1", "4.1.0-2")
async def test_v5_mqtt_4_1_0_1_session_outlives_its_expiry_while_it_is_connected_and_no_longer(
    brisk: RunningServer, peers: Peers, name: str
) -> None:
    watcher, publisher = [await peers.connect(port=brisk.port) for _ in range(2)]
    await watcher.subscribe(f"{name}/will", qos=1)
    present = await peers.connect(f"{name}-present", expiry=1, port=brisk.port)
    await present.subscribe(name, qos=2)
    await publisher.publish(name, b"x", 2)
    begun = await present.receive(Publish)
    # Its will comes when its session ends, after the same second as the other's would.
    will = Will(f"{name}/will", b"session ended", properties=PacketProperties(will_delay=100))
    absent = await peers.connect(f"{name}-absent", expiry=1, will=will, port=brisk.port)
    await absent.cut()
    assert payloads([await watcher.receive(Publish)]) == [b"session ended"]
    await present.send(PubRec(begun.packet_id))
    assert await present.receive(PubRel) == PubRel(begun.packet_id)
    absent = await peers.connect(f"{name}-absent", clean=False, expiry=1, port=brisk.port)
    assert not absent.connack.session_present


@v5("4.1.0-2")
async def test_v5_mqtt_4_1_0_2_session_without_expiry_ends_with_its_connection(
    peers: Peers, name: str
) -> None:
    peer, publisher = await peers.connect(name, expiry=0), await peers.connect()
    await peer.subscribe(name, qos=1)
    await peer.leave()
    await publisher.publish(name, b"to nobody")
    peer = await peers.connect(name, clean=False)
    assert not peer.connack.session_present
    await publisher.publish(name, b"to nobody")
    assert await peer.fence() == []


# Transport


@v5("4.2.0-1")
async def test_v5_mqtt_4_2_0_1_bytes_keep_their_order_however_they_are_cut(peers: Peers, name: str) -> None:
    peer, watcher = await peers.connect(), await peers.connect()
    await watcher.subscribe(name)
    bodies = [b"%d" % number * (number % 90 + 1) for number in range(200)]
    data = b"".join(encode_packet(Publish(name, body), Version.V5) for body in bodies)
    for start in range(0, len(data), 37):
        await peer.send_bytes(data[start : start + 37])
    assert payloads([await watcher.receive(Publish) for _ in bodies]) == bodies


# QoS 0


@v5("4.3.1-1")
async def test_v5_mqtt_4_3_1_1_message_at_qos_0_has_neither_dup_nor_packet_id(
    peers: Peers, name: str
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(name, qos=0)
    for qos in range(3):
        await publisher.publish(name, b"x", qos)
        assert await peer.receive(Publish) == Publish(name, b"x")


@v5("4.3.1-1")
async def test_v5_mqtt_4_3_1_1_message_at_qos_0_is_not_sent_again(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(name, expiry=FOR_EVER), await peers.connect()
    await peer.subscribe(name)
    await publisher.publish(name, b"x", 2)
    await peer.receive(Publish)
    peer = await come_back(peers, peer, name)
    assert await peer.fence() == []


# QoS 1 and 2, the server as sender


@assured
@v5("4.3.2-1", "4.3.2-2", "4.3.3-1", "4.3.3-2")
async def test_v5_mqtt_4_3_2_1_every_new_message_has_an_id_that_is_free(
    peers: Peers, name: str, qos: int
) -> None:
    peer, messages = await begin(peers, name, qos, *[b"%d" % number for number in range(50)])
    assert {(message.qos, message.dup) for message in messages} == {(qos, False)}
    numbers = [message.packet_id for message in messages]
    assert len({0, *numbers}) == 51
    await peer.send(*(PubAck(number) if qos == 1 else PubRec(number) for number in numbers[::2]))
    if qos == 2:
        assert [(await peer.receive(PubRel)).packet_id for _ in numbers[::2]] == numbers[::2]
    publisher = await peers.connect()
    await publisher.publish(name, b"new", qos)
    (new,) = [message.packet_id for message in await peer.receive_all(1)]
    assert new not in (numbers[1::2] if qos == 1 else numbers)  # at QoS 2 an id is free after PUBCOMP


@v5("4.3.2-3")
async def test_v5_mqtt_4_3_2_3_message_at_qos_1_is_outstanding_until_its_puback(
    peers: Peers, name: str
) -> None:
    peer, (one, two) = await begin(peers, name, 1, b"one", b"two")
    await peer.send(PubAck(two.packet_id))
    await peer.fence()
    peer = await come_back(peers, peer, name)
    assert await peer.receive(Publish) == Publish(name, b"one", 1, False, True, one.packet_id)
    assert await peer.fence() == []
    await peer.send(PubAck(one.packet_id))
    await peer.fence()
    assert await (await come_back(peers, peer, name)).fence() == []


@v5("4.3.3-3")
async def test_v5_mqtt_4_3_3_3_message_at_qos_2_is_outstanding_until_its_pubrec(
    peers: Peers, name: str
) -> None:
    peer, (message,) = await begin(peers, name, 2, b"x")
    for _ in range(2):
        peer = await come_back(peers, peer, name)
        assert await peer.receive(Publish) == Publish(name, b"x", 2, False, True, message.packet_id)


@pytest.mark.parametrize("reason", [0x00, 0x10], ids=hex)
@v5("4.3.3-4")
async def test_v5_mqtt_4_3_3_4_pubrec_is_answered_by_pubrel_with_the_same_id(
    peers: Peers, name: str, reason: int
) -> None:
    peer, (message,) = await begin(peers, name, 2, b"x")
    await peer.send(PubRec(message.packet_id, reason))
    assert await peer.receive(PubRel) == PubRel(message.packet_id)


@v5("4.3.3-4")
async def test_v5_mqtt_4_3_3_4_pubrec_that_refuses_is_not_answered(peers: Peers, name: str) -> None:
    peer, (message,) = await begin(peers, name, 2, b"x")
    await peer.send(PubRec(message.packet_id, ReasonCode.QUOTA_EXCEEDED))
    assert await peer.fence() == []


@v5("4.3.3-5", "4.3.3-6")
async def test_v5_mqtt_4_3_3_5_pubrel_is_outstanding_until_its_pubcomp(peers: Peers, name: str) -> None:
    peer, (message,) = await begin(peers, name, 2, b"x")
    await peer.send(PubRec(message.packet_id))
    await peer.receive(PubRel)
    for _ in range(2):
        peer = await come_back(peers, peer, name)
        assert await peer.fence() == [PubRel(message.packet_id)]
    await peer.send(PubComp(message.packet_id))
    await peer.fence()
    assert await (await come_back(peers, peer, name)).fence() == []


@v5("4.3.3-6")
async def test_v5_mqtt_4_3_3_6_pubrec_once_more_brings_no_publish(peers: Peers, name: str) -> None:
    peer, (message,) = await begin(peers, name, 2, b"x")
    for _ in range(2):
        await peer.send(PubRec(message.packet_id))
        assert await peer.fence() == [PubRel(message.packet_id)]


@assured
@v5("4.3.3-7")
async def test_v5_mqtt_4_3_3_7_message_that_was_sent_no_longer_expires(
    peers: Peers, name: str, qos: int
) -> None:
    peer, publisher = await peers.connect(name, expiry=FOR_EVER), await peers.connect()
    await peer.subscribe(name, qos=qos)
    await publisher.publish(name, b"x", qos, properties=PacketProperties(message_expiry=0))
    sent = await peer.receive(Publish)
    peer = await come_back(peers, peer, name)
    again = await peer.receive(Publish)
    assert (again.payload, again.packet_id, again.dup) == (b"x", sent.packet_id, True)


# QoS 1 and 2, the server as receiver


@pytest.mark.parametrize("packet_id", [1, 77, 65_535])
@v5("4.3.2-4", "4.3.3-8", "4.3.3-11")
async def test_v5_mqtt_4_3_2_4_answers_repeat_the_id_of_the_message(
    peers: Peers, name: str, packet_id: int
) -> None:
    peer, watcher = await peers.connect(), await peers.connect()
    await watcher.subscribe(name)
    await peer.send(Publish(name, b"one", 1, packet_id=packet_id))
    assert await peer.receive(PubAck) == PubAck(packet_id)
    await peer.send(Publish(name, b"two", 2, packet_id=packet_id))
    assert await peer.receive(PubRec) == PubRec(packet_id)
    await peer.send(PubRel(packet_id))
    assert await peer.receive(PubComp) == PubComp(packet_id)
    assert payloads(await watcher.fence()) == [b"one", b"two"]


@v5("4.3.2-5")
async def test_v5_mqtt_4_3_2_5_after_puback_the_same_id_means_a_new_message(peers: Peers, name: str) -> None:
    peer, watcher = await peers.connect(), await peers.connect()
    await watcher.subscribe(name)
    for dup in (False, True, False):
        await peer.send(Publish(name, b"x", 1, dup=dup, packet_id=5))
        assert await peer.receive(PubAck) == PubAck(5)
    assert payloads(await watcher.fence()) == [b"x", b"x", b"x"]


@v5("4.3.3-9")
async def test_v5_mqtt_4_3_3_9_after_a_refusal_the_same_id_means_a_new_message(
    peers: Peers, name: str
) -> None:
    peer, watcher = await peers.connect(), await peers.connect()
    await watcher.subscribe(name)
    for _ in range(2):
        await peer.send(Publish("$SYS/not/for/clients", b"x", 2, packet_id=5))
        assert (await peer.receive(PubRec)).reason == ReasonCode.NOT_AUTHORIZED
    await peer.send(Publish(name, b"new", 2, packet_id=5))
    assert await peer.receive(PubRec) == PubRec(5)
    assert payloads(await watcher.fence()) == [b"new"]


@pytest.mark.parametrize("is_cut", [False, True], ids=["same-connection", "next-connection"])
@v5("4.3.3-10")
async def test_v5_mqtt_4_3_3_10_repeats_before_pubrel_are_answered_and_not_passed_on(
    peers: Peers, name: str, is_cut: bool
) -> None:
    peer, watcher = await peers.connect(name, expiry=FOR_EVER), await peers.connect()
    await watcher.subscribe(f"{name}/+")
    for dup in (False, True, True):
        if dup and is_cut:
            peer = await come_back(peers, peer, name)
        await peer.send(Publish(f"{name}/t", b"x", 2, dup=dup, packet_id=5))
        assert await peer.receive(PubRec) == PubRec(5)
    assert payloads(await watcher.fence()) == [b"x"]


@v5("4.3.3-11")
async def test_v5_mqtt_4_3_3_11_every_pubrel_is_answered(peers: Peers, name: str) -> None:
    peer = await peers.connect()
    await peer.send(Publish(name, b"x", 2, packet_id=5))
    await peer.receive(PubRec)
    await peer.send(PubRel(5), PubRel(5), PubRel(6))
    assert [(await peer.receive(PubComp)).packet_id for _ in range(3)] == [5, 5, 6]


@pytest.mark.parametrize("dup", [False, True])
@v5("4.3.3-12")
async def test_v5_mqtt_4_3_3_12_after_pubcomp_the_same_id_means_a_new_message(
    peers: Peers, name: str, dup: bool
) -> None:
    peer, watcher = await peers.connect(), await peers.connect()
    await watcher.subscribe(name)
    for is_again in (False, True):
        await peer.send(Publish(name, b"x", 2, dup=dup and is_again, packet_id=5))
        await peer.receive(PubRec)
        await peer.send(PubRel(5))
        await peer.receive(PubComp)
    assert payloads(await watcher.fence()) == [b"x", b"x"]


@v5("4.3.3-13")
async def test_v5_mqtt_4_3_3_13_exchange_is_completed_after_the_message_has_expired(
    peers: Peers, name: str
) -> None:
    peer, away = await peers.connect(), await peers.connect(name, expiry=FOR_EVER)
    await away.subscribe(name, qos=2)
    await away.leave()
    message = Publish(name, b"x", 2, packet_id=5, properties=PacketProperties(message_expiry=0))
    await peer.send(message)
    assert (await peer.receive(PubRec)).reason < 0x80
    away = await peers.connect(name, clean=False, expiry=FOR_EVER)
    assert await away.fence() == []  # it has expired
    await peer.send(message)
    assert (await peer.receive(PubRec)).reason < 0x80
    await peer.send(PubRel(5))
    assert await peer.receive(PubComp) == PubComp(5)


# Delivery once more


@v5("4.4.0-1")
async def test_v5_mqtt_4_4_0_1_what_is_open_is_sent_again_in_order_when_the_session_goes_on(
    peers: Peers, name: str
) -> None:
    peer, publisher = await peers.connect(name, expiry=FOR_EVER), await peers.connect()
    await peer.subscribe(name, qos=2)
    for number, qos in enumerate((1, 2, 2, 1)):
        await publisher.publish(name, b"%d" % number, qos)
    one, two, three, four = [await peer.receive(Publish) for _ in range(4)]
    await peer.send(PubRec(two.packet_id))
    await peer.receive(PubRel)
    peer = await come_back(peers, peer, name)
    assert await peer.fence() == [
        Publish(name, b"0", 1, False, True, one.packet_id),
        PubRel(two.packet_id),
        Publish(name, b"2", 2, False, True, three.packet_id),
        Publish(name, b"3", 1, False, True, four.packet_id),
    ]


@assured
@v5("4.4.0-1")
async def test_v5_mqtt_4_4_0_1_nothing_is_sent_again_while_the_connection_lasts(
    peers: Peers, name: str, qos: int
) -> None:
    peer, _ = await begin(peers, name, qos, b"a", b"b")
    await peer.subscribe(f"{name}/other")
    await peer.subscribe(Request(name, qos, retain_handling=2))
    assert await peer.fence() == []


@assured
@v5("4.4.0-1")
async def test_v5_mqtt_4_4_0_1_a_clean_start_brings_nothing_back(peers: Peers, name: str, qos: int) -> None:
    peer, _ = await begin(peers, name, qos, b"a", b"b")
    await peer.cut()
    peer = await peers.connect(name, clean=True, expiry=FOR_EVER)
    assert await peer.fence() == []


@assured
@v5("4.4.0-2")
async def test_v5_mqtt_4_4_0_2_refused_message_is_done_with_and_not_sent_again(
    peers: Peers, name: str, qos: int
) -> None:
    peer, (one, two) = await begin(peers, name, qos, b"one", b"two")
    refusal = PubAck if qos == 1 else PubRec
    await peer.send(refusal(one.packet_id, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR))
    await peer.fence()
    peer = await come_back(peers, peer, name)
    assert [packet.packet_id for packet in await peer.fence() if isinstance(packet, Publish)] == [
        two.packet_id
    ]


# Taken over by the server


@every_qos
@v5("4.5.0-1")
async def test_v5_mqtt_4_5_0_1_accepted_message_joins_every_session_it_matches(
    peers: Peers, name: str, qos: int
) -> None:
    here = [await peers.connect() for _ in range(2)]
    away = await peers.connect(name, expiry=FOR_EVER)
    await here[0].subscribe(f"{name}/a", qos=2)
    await here[1].subscribe(f"{name}/+", f"{name}/#", qos=2)
    await away.subscribe(f"{name}/#", qos=2)
    await away.leave()
    publisher = await peers.connect()
    await publisher.publish(f"{name}/a", b"x", qos)
    for peer in here:
        assert payloads(await peer.fence()) == [b"x"]
    away = await peers.connect(name, clean=False, expiry=FOR_EVER)
    assert payloads(await away.fence()) == ([b"x"] if qos else [])
