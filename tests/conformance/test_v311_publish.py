"""MQTT 3.1.1, sections 3.3, 4.3 and 4.6: messages on their way in and out, by QoS and in order."""

import pytest

from penstock.wire.mqtt import Packet, PubAck, PubComp, Publish, PubRec, PubRel, Request
from tests.conformance.statements import v311
from tests.conformance.v311_bytes import ending, frame, text
from tests.doors.mqtt.peers import Peers, every_qos, payloads

# Flags


@v311("3.3.1-1")
async def test_v311_mqtt_3_3_1_1_message_sent_again_has_its_dup_flag(peers_311: Peers, name: str) -> None:
    peer, publisher = await peers_311.connect(name, clean=False), await peers_311.connect()
    await peer.subscribe(name, qos=2)
    for qos in (1, 2):
        await publisher.publish(name, b"x", qos)
    first = [await peer.receive(Publish) for _ in range(2)]
    assert [message.dup for message in first] == [False, False]
    for _ in range(2):  # and each time
        await peer.cut()
        peer = await peers_311.connect(name, clean=False)
        again = [await peer.receive(Publish) for _ in range(2)]
        assert [message.dup for message in again] == [True, True]


@v311("3.3.1-2")
async def test_v311_mqtt_3_3_1_2_qos_0_with_the_dup_flag_closes_the_connection(
    peers_311: Peers, name: str
) -> None:
    assert await ending(peers_311, frame(0x38, text(name) + b"x")) == []


@every_qos
@v311("3.3.1-2", "3.3.1-3")
async def test_v311_mqtt_3_3_1_3_dup_flag_of_the_sender_is_not_passed_on(
    peers_311: Peers, name: str, qos: int
) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await peer.subscribe(name, qos=qos)
    await publisher.send(
        Publish(name, b"1", 1, dup=True, packet_id=1), Publish(name, b"2", 2, dup=True, packet_id=2)
    )
    got = [await peer.receive(Publish) for _ in range(2)]
    assert [(message.payload, message.dup) for message in got] == [(b"1", False), (b"2", False)]


@pytest.mark.parametrize("flags", [0x06, 0x07, 0x0E, 0x0F])
@v311("3.3.1-4")
async def test_v311_mqtt_3_3_1_4_qos_3_closes_the_connection(peers_311: Peers, name: str, flags: int) -> None:
    assert await ending(peers_311, frame(0x30 | flags, text(name) + b"\x00\x01x")) == []


# Topic


@v311("3.3.2-1")
async def test_v311_mqtt_3_3_2_1_variable_header_begins_with_the_topic(peers_311: Peers, name: str) -> None:
    peer = await peers_311.connect()
    topic = f"{name}/grüße/水/𝄞"
    await peer.subscribe(f"{name}/#", qos=1)
    await peer.send_bytes(frame(0x32, text(topic) + b"\x00\x01payload"))
    got = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert [(message.topic, message.payload) for message in got] == [(topic, b"payload")]


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x05a", b"\x00\x01"])
@v311("3.3.2-1")
async def test_v311_mqtt_3_3_2_1_publish_without_a_whole_topic_closes_the_connection(
    peers_311: Peers, body: bytes
) -> None:
    assert await ending(peers_311, frame(0x30, body)) == []


# Answers


@every_qos
@v311("3.3.4-1", "4.3.2-2", "4.3.3-2")
async def test_v311_mqtt_3_3_4_1_message_is_answered_by_its_qos(
    peers_311: Peers, name: str, qos: int
) -> None:
    peer = await peers_311.connect()
    await peer.send(Publish(name, b"x", qos, packet_id=7 if qos else 0))
    answers: dict[int, list[Packet]] = {0: [], 1: [PubAck(7)], 2: [PubRec(7)]}
    assert await peer.fence() == answers[qos]


@v311("3.3.5-1")
async def test_v311_mqtt_3_3_5_1_overlapping_filters_bring_the_highest_qos(
    peers_311: Peers, name: str
) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await peer.subscribe(Request(f"{name}/#", 0), Request(f"{name}/+", 2), Request(f"{name}/a", 1))
    await publisher.publish(f"{name}/a", b"x", 2)
    got = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert max(message.qos for message in got) == 2
    assert [message.qos for message in got].count(2) == 1


# QoS 0


@v311("4.3.1-1", "3.3.1-2")
async def test_v311_mqtt_4_3_1_1_qos_0_is_sent_once_and_never_again(peers_311: Peers, name: str) -> None:
    peer, publisher = await peers_311.connect(name, clean=False), await peers_311.connect()
    await peer.subscribe(name, qos=2)
    await publisher.publish(name, b"x", 0)
    assert await peer.receive(Publish) == Publish(name, b"x", 0)
    await peer.cut()
    peer = await peers_311.connect(name, clean=False)
    assert await peer.fence() == []


# QoS 1


@v311("4.3.2-1")
async def test_v311_mqtt_4_3_2_1_qos_1_is_on_its_way_until_it_is_acknowledged(
    peers_311: Peers, name: str
) -> None:
    peer, publisher = await peers_311.connect(name, clean=False), await peers_311.connect()
    await peer.subscribe(name, qos=1)
    for payload in (b"a", b"b"):
        await publisher.publish(name, payload, 1)
    first, second = [await peer.receive(Publish) for _ in range(2)]
    assert first == Publish(name, b"a", 1, packet_id=first.packet_id)
    assert second == Publish(name, b"b", 1, packet_id=second.packet_id)
    assert 0 != first.packet_id != second.packet_id != 0
    await peer.send(PubAck(first.packet_id))
    assert await peer.fence() == []
    await peer.cut()
    peer = await peers_311.connect(name, clean=False)
    assert await peer.receive(Publish) == Publish(name, b"b", 1, dup=True, packet_id=second.packet_id)
    await peer.send(PubAck(second.packet_id))
    assert await peer.fence() == []


@v311("4.3.2-2")
async def test_v311_mqtt_4_3_2_2_acknowledged_packet_id_is_that_of_a_new_message(
    peers_311: Peers, name: str
) -> None:
    watcher, peer = await peers_311.connect(), await peers_311.connect()
    await watcher.subscribe(name)
    for payload, is_dup in ((b"a", False), (b"a", True), (b"b", False)):
        await peer.send(Publish(name, payload, 1, dup=is_dup, packet_id=3))
        assert await peer.receive(PubAck) == PubAck(3)
    assert payloads(await watcher.fence()) == [b"a", b"a", b"b"]


# QoS 2


@v311("4.3.3-1")
async def test_v311_mqtt_4_3_3_1_qos_2_is_sent_released_and_done(peers_311: Peers, name: str) -> None:
    peer, publisher = await peers_311.connect(name, clean=False), await peers_311.connect()
    await peer.subscribe(name, qos=2)
    for payload in (b"a", b"b"):
        await publisher.publish(name, payload, 2)
    first, second = [await peer.receive(Publish) for _ in range(2)]
    assert first == Publish(name, b"a", 2, packet_id=first.packet_id)
    assert 0 != first.packet_id != second.packet_id != 0
    await peer.send(PubRec(first.packet_id))
    assert await peer.fence() == [PubRel(first.packet_id)]
    await peer.cut()
    peer = await peers_311.connect(name, clean=False)
    rest = Publish(name, b"b", 2, dup=True, packet_id=second.packet_id)
    assert await peer.fence() == [PubRel(first.packet_id), rest]  # the released message is not sent again
    await peer.send(PubComp(first.packet_id), PubRec(second.packet_id))
    assert await peer.fence() == [PubRel(second.packet_id)]
    await peer.send(PubComp(second.packet_id))
    await peer.leave()
    peer = await peers_311.connect(name, clean=False)
    assert await peer.fence() == []


@v311("4.3.3-2")
async def test_v311_mqtt_4_3_3_2_qos_2_is_passed_on_once_however_often_it_comes(
    peers_311: Peers, name: str
) -> None:
    watcher, peer = await peers_311.connect(), await peers_311.connect()
    await watcher.subscribe(name)
    for is_dup in (False, True, True):
        await peer.send(Publish(name, b"x", 2, dup=is_dup, packet_id=3))
        assert await peer.receive(PubRec) == PubRec(3)
    for _ in range(2):
        await peer.send(PubRel(3))
        assert await peer.receive(PubComp) == PubComp(3)
    assert payloads(await watcher.fence()) == [b"x"]
    await peer.send(Publish(name, b"y", 2, packet_id=3))
    assert await peer.receive(PubRec) == PubRec(3)
    assert payloads(await watcher.fence()) == [b"y"]


# Order


@every_qos
@v311("4.6.0-5", "4.6.0-6")
async def test_v311_mqtt_4_6_0_6_messages_arrive_in_the_order_of_their_sender(
    peers_311: Peers, name: str, qos: int
) -> None:
    peer, one, other = [await peers_311.connect() for _ in range(3)]
    await peer.subscribe(name, qos=qos)
    for number in range(0, 200, 20):  # two senders who take turns, and know nothing of each other
        for sender in (one, other):
            for each in range(number, number + 20):
                packet_id = each + 1 if qos else 0
                await sender.send(Publish(name, b"%d %d" % (sender is one, each), qos, packet_id=packet_id))
    got = [(await peer.receive(Publish)).payload.split() for _ in range(400)]
    for digit in (b"0", b"1"):
        assert [int(number) for whose, number in got if whose == digit] == list(range(200))


@v311("4.6.0-6")
async def test_v311_mqtt_4_6_0_6_acknowledgements_keep_the_order_of_what_they_acknowledge(
    peers_311: Peers, name: str
) -> None:
    peer = await peers_311.connect()
    ids = [9, 3, 7, 1, 5]
    await peer.send(*(Publish(name, b"", 1, packet_id=packet_id) for packet_id in ids))
    assert await peer.fence() == [PubAck(packet_id) for packet_id in ids]  # MQTT-4.6.0-2
    await peer.send(*(Publish(name, b"", 2, packet_id=packet_id) for packet_id in ids))
    assert await peer.fence() == [PubRec(packet_id) for packet_id in ids]  # MQTT-4.6.0-3
    await peer.subscribe(name, qos=2)
    for _ in ids:
        await peer.send(Publish(name, b"", 0), Publish(name, b"", 2, packet_id=peer.next_id()))
    got = [packet.packet_id for packet in await peer.fence() if isinstance(packet, Publish) and packet.qos]
    got = [*got[1::2], *got[::2]]
    await peer.send(*(PubRec(packet_id) for packet_id in got))
    assert await peer.fence() == [PubRel(packet_id) for packet_id in got]  # MQTT-4.6.0-4
