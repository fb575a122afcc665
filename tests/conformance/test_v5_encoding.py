"""MQTT 5, chapters 1 and 2: integers, headers, packet identifiers, properties."""

import pytest

from penstock.wire.mqtt import (
    Connect,
    PacketType,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    Request,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
)
from tests.conformance.endings import ending_after
from tests.conformance.statements import v5
from tests.conformance.v5_bytes import NOTHING, RawPeer, connect, frame, publish, refusal, text
from tests.doors.mqtt.peers import Peers
from tests.support.servers import RunningServer

MALFORMED = ReasonCode.MALFORMED_PACKET
ID = b"\x00\x07"


# Integers


@v5("1.5.5-1")
@pytest.mark.parametrize(
    "data",
    [
        b"\x30\x84\x00" + text("t") + NOTHING,
        b"\x30\x85\x80\x00" + text("t") + NOTHING,
        frame(0x30, text("t"), b"\x80\x00"),
        frame(0x82, ID, b"\x03\x0b\x81\x00", text("t"), b"\x00"),
    ],
    ids=["length", "length of three bytes", "length of the properties", "subscription identifier"],
)
async def test_v5_mqtt_1_5_5_1_integer_in_more_bytes_than_necessary_is_malformed(
    peers: Peers, data: bytes
) -> None:
    assert await ending_after(await peers.connect(), data) == MALFORMED


@v5("1.5.5-1")
@pytest.mark.parametrize(("size", "written"), [(127, 1), (128, 2), (16_383, 2), (16_384, 3), (2_097_152, 4)])
async def test_v5_mqtt_1_5_5_1_server_writes_integers_in_as_few_bytes_as_possible(
    server: RunningServer, name: str, size: int, written: int
) -> None:
    async with await RawPeer.open(server.port) as peer:
        await peer.ask(Connect("", Version.V5))
        await peer.ask(Subscribe(1, (Request(name),)))
        head = text(name) + NOTHING
        delivered = await peer.ask(Publish(name, bytes(size - len(head))))
        assert delivered[1 + written :].startswith(head)
        assert len(delivered) == 1 + written + size


# Flags of the header


@v5("2.1.3-1")
@pytest.mark.parametrize(
    "data",
    [
        frame(0x41, ID),
        frame(0x52, ID),
        frame(0x60, ID),
        frame(0x63, ID),
        frame(0x78, ID),
        frame(0x80, ID, NOTHING, text("t"), b"\x00"),
        frame(0x83, ID, NOTHING, text("t"), b"\x00"),
        frame(0xA0, ID, NOTHING, text("t")),
        frame(0xC1),
        frame(0xE2),
        frame(0xF1),
    ],
    ids=lambda data: f"{data[0]:#x}",
)
async def test_v5_mqtt_2_1_3_1_wrong_flags_are_malformed(peers: Peers, data: bytes) -> None:
    assert await ending_after(await peers.connect(), data) == MALFORMED


@v5("2.1.3-1")
async def test_v5_mqtt_2_1_3_1_server_writes_the_flags_of_each_packet(
    server: RunningServer, name: str
) -> None:
    async with await RawPeer.open(server.port) as peer:
        got = [
            await peer.ask(Connect("", Version.V5)),
            await peer.ask(Subscribe(1, (Request(name, 2),))),
            await peer.ask(PingReq()),
            await peer.ask(Publish(name, b"x", 0)),
        ]
        await peer.send(Publish(name, b"x", 1, packet_id=2), Publish(name, b"x", 2, packet_id=3))
        got += [await peer.receive() for _ in range(4)]
        second = next(packet for packet in got if packet[0] == 0x34)
        number = int.from_bytes(second[-4:-2], "big")
        got += [await peer.ask(PubRec(number)), await peer.ask(PubRel(3))]
        got += [await peer.ask(Unsubscribe(4, (name,))), await peer.ask(Connect("", Version.V5))]
    flags = {PacketType(packet[0] >> 4): packet[0] & 0x0F for packet in got if packet[0] >> 4 != 3}
    assert flags == {
        PacketType.CONNACK: 0,
        PacketType.SUBACK: 0,
        PacketType.PINGRESP: 0,
        PacketType.PUBACK: 0,
        PacketType.PUBREC: 0,
        PacketType.PUBREL: 2,
        PacketType.PUBCOMP: 0,
        PacketType.UNSUBACK: 0,
        PacketType.DISCONNECT: 0,
    }


@v5("2.1.3-1")
async def test_v5_mqtt_2_1_3_1_wrong_flags_of_a_connect_are_refused(peers: Peers) -> None:
    peer = await peers.open()
    await peer.send_bytes(b"\x11" + connect(text("c"))[1:])
    assert await peer.last_words() == []


# Packet identifiers


@v5("2.2.1-2")
async def test_v5_mqtt_2_2_1_2_message_at_qos_0_has_no_packet_id(server: RunningServer, name: str) -> None:
    async with await RawPeer.open(server.port) as peer:
        await peer.ask(Connect("", Version.V5))
        await peer.ask(Subscribe(1, (Request(name, 2),)))
        assert await peer.ask(Publish(name, b"payload")) == publish(name, payload=b"payload")


@v5("2.2.1-2")
async def test_v5_mqtt_2_2_1_2_message_granted_qos_0_has_no_packet_id(
    server: RunningServer, peers: Peers, name: str
) -> None:
    publisher = await peers.connect()
    async with await RawPeer.open(server.port) as peer:
        await peer.ask(Connect("", Version.V5))
        await peer.ask(Subscribe(1, (Request(name, 0),)))
        await publisher.publish(name, b"payload", 2)
        assert await peer.receive() == publish(name, payload=b"payload")


@v5("2.2.1-3")
@pytest.mark.parametrize(
    "data",
    [
        publish("t", first=0x32, packet_id=b"\x00\x00"),
        publish("t", first=0x34, packet_id=b"\x00\x00"),
        frame(0x82, b"\x00\x00", NOTHING, text("t"), b"\x00"),
        frame(0xA2, b"\x00\x00", NOTHING, text("t")),
    ],
    ids=["PUBLISH at QoS 1", "PUBLISH at QoS 2", "SUBSCRIBE", "UNSUBSCRIBE"],
)
async def test_v5_mqtt_2_2_1_3_packet_id_zero_ends_the_connection(peers: Peers, data: bytes) -> None:
    assert await ending_after(await peers.connect(), data) == MALFORMED


@v5("2.2.1-4")
async def test_v5_mqtt_2_2_1_4_server_uses_no_packet_id_that_is_in_use(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(name, qos=2)
    in_use: set[int] = set()
    for _ in range(3):
        for number in range(10):
            await publisher.publish(name, b"x", 1 + number % 2)
        messages = [await peer.receive(Publish) for _ in range(10)]
        ids = {message.packet_id for message in messages}
        assert len(ids) == 10
        assert not ids & in_use
        assert 0 not in ids
        in_use |= {message.packet_id for message in messages if message.qos == 2}
        await peer.send(*(PubAck(message.packet_id) for message in messages if message.qos == 1))


@v5("2.2.1-5")
@pytest.mark.parametrize("number", [1, 256, 65_535])
async def test_v5_mqtt_2_2_1_5_answers_repeat_the_packet_id_of_the_publish(
    peers: Peers, name: str, number: int
) -> None:
    peer = await peers.connect()
    await peer.send(Publish(name, b"x", 1, packet_id=number))
    assert (await peer.receive(PubAck)).packet_id == number
    await peer.send(Publish(name, b"x", 2, packet_id=number))
    assert (await peer.receive(PubRec)).packet_id == number
    await peer.send(PubRel(number))
    assert await peer.receive(PubComp) == PubComp(number)


@v5("2.2.1-5")
async def test_v5_mqtt_2_2_1_5_release_repeats_the_packet_id_of_the_delivery(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(name, qos=2)
    for _ in range(3):
        await publisher.publish(name, b"x", 2)
    numbers = [(await peer.receive(Publish)).packet_id for _ in range(3)]
    for number in reversed(numbers):
        await peer.send(PubRec(number))
        assert await peer.receive(PubRel) == PubRel(number)


@v5("2.2.1-6")
@pytest.mark.parametrize("number", [1, 256, 65_535])
async def test_v5_mqtt_2_2_1_6_answers_repeat_the_packet_id_of_the_request(
    peers: Peers, name: str, number: int
) -> None:
    peer = await peers.connect()
    await peer.send(Subscribe(number, (Request(name),)))
    assert await peer.receive(SubAck) == SubAck(number, (0,))
    await peer.send(Unsubscribe(number, (name,)))
    assert await peer.receive(UnsubAck) == UnsubAck(number, (0,))


# Properties


@v5("2.2.2-1")
async def test_v5_mqtt_2_2_2_1_server_writes_that_there_are_no_properties(
    server: RunningServer, name: str
) -> None:
    async with await RawPeer.open(server.port) as peer:
        await peer.ask(Connect("", Version.V5))
        assert await peer.ask(Subscribe(7, (Request(name, 1),))) == frame(0x90, ID, NOTHING, b"\x01")
        assert await peer.ask(Publish(name)) == frame(0x30, text(name), NOTHING)
        assert await peer.ask(Unsubscribe(7, (name,))) == frame(0xB0, ID, NOTHING, b"\x00")


@v5("2.2.2-1")
@pytest.mark.parametrize(
    "data",
    [frame(0x30, text("t")), frame(0x32, text("t"), ID), frame(0x82, ID), frame(0xA2, ID)],
    ids=["PUBLISH at QoS 0", "PUBLISH at QoS 1", "SUBSCRIBE", "UNSUBSCRIBE"],
)
async def test_v5_mqtt_2_2_2_1_packet_without_the_length_of_its_properties_is_malformed(
    peers: Peers, data: bytes
) -> None:
    assert await ending_after(await peers.connect(), data) == MALFORMED


@v5("2.2.2-1")
async def test_v5_mqtt_2_2_2_1_connect_without_the_length_of_its_properties_is_malformed(
    peers: Peers,
) -> None:
    assert await refusal(peers, connect(properties=b"")) == MALFORMED
    assert await refusal(peers, connect(text("c"), text("t"), text("x"), flags=0x06)) == MALFORMED
