"""MQTT 3.1.1, sections 4.8 and 7: errors end the connection, and the standard is all a client needs."""

import random

import pytest

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Packet,
    PingResp,
    Publish,
    Reply,
    SubAck,
    UnsubAck,
    Version,
    Will,
    encode_packet,
)
from tests.conformance.statements import v311
from tests.conformance.v311_bytes import connect, converse, ending, frame, text
from tests.doors.mqtt.peers import Peers, payloads
from tests.support.servers import RunningServer, StartServer


@pytest.mark.parametrize(
    "packet",
    [ConnAck(), SubAck(1, (0,)), UnsubAck(1), PingResp(), Connect("", Version.V311)],
    ids=lambda packet: type(packet).__name__,
)
@v311("4.8.0-1")
async def test_v311_mqtt_4_8_0_1_packet_that_is_not_a_clients_to_send_closes_the_connection(
    peers_311: Peers, packet: Packet
) -> None:
    assert await ending(peers_311, packet) == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00",
        b"\xf0\x00",
        b"\xc0\xff\xff\xff\xff\x01",
        frame(0xC0, b"x"),
        frame(0xE0, b"x"),
        frame(0x40, b"\x01"),
        frame(0x62, b"\x00\x01\x00"),
    ],
    ids=["type 0", "type 15", "length", "long ping", "long goodbye", "short puback", "long pubrel"],
)
@v311("4.8.0-1")
async def test_v311_mqtt_4_8_0_1_bytes_that_are_no_packet_close_the_connection(
    peers_311: Peers, data: bytes
) -> None:
    assert await ending(peers_311, data) == []


@v311("4.8.0-1")
async def test_v311_mqtt_4_8_0_1_only_the_connection_of_the_violation_is_closed(
    peers_311: Peers, name: str
) -> None:
    other = await peers_311.connect()
    await other.subscribe(name)
    peer = await peers_311.connect(will=Will(name, b"gone"))
    await peer.send_bytes(b"\x00\x00")
    assert await peer.last_words() == []
    assert payloads(await other.fence()) == [b"gone"]


@v311("4.8.0-2")
async def test_v311_mqtt_4_8_0_2_message_there_is_no_room_for_now_closes_the_connection(
    start_server: StartServer, peers_311: Peers
) -> None:
    port = start_server({"topic": {"max_topics": 10}}).port
    watcher = await peers_311.connect(port=port)
    await watcher.subscribe("#")
    for qos in (1, 2):
        peer = await peers_311.connect(port=port)
        await peer.send(*(Publish(f"{qos}/{n}", b"%d" % n, qos, packet_id=n) for n in range(1, 21)))
        acknowledged = [word.packet_id for word in await peer.last_words() if isinstance(word, Reply)]
        arrived = [int(payload) for payload in payloads(await watcher.fence())]
        assert set(acknowledged) <= set(arrived)
        assert len(arrived) < 20  # the others are not acknowledged, and so the client still has them


@v311("7.0.0-2")
async def test_v311_mqtt_7_0_0_2_nothing_but_the_standard_is_needed_or_said(
    server: RunningServer, name: str
) -> None:
    topic = text(name)
    await converse(
        server.port,
        [
            (connect(0x02, text(name)), b"\x20\x02\x00\x00"),
            (frame(0x82, b"\x00\x0a" + topic + b"\x01"), b"\x90\x03\x00\x0a\x01"),
            (frame(0x31, topic + b"0"), frame(0x30, topic + b"0")),
            (frame(0x32, topic + b"\x00\x0b1"), b"\x40\x02\x00\x0b" + frame(0x32, topic + b"\x00\x011")),
            (b"\x40\x02\x00\x01\xc0\x00", b"\xd0\x00"),
            (frame(0x82, b"\x00\x0c" + topic + b"\x00"), b"\x90\x03\x00\x0c\x00" + frame(0x31, topic + b"0")),
            (frame(0xA2, b"\x00\x0d" + topic), b"\xb0\x02\x00\x0d"),
            (frame(0x34, topic + b"\x00\x0e2"), b"\x50\x02\x00\x0e"),
            (frame(0x62, b"\x00\x0e"), b"\x70\x02\x00\x0e"),
            (frame(0x31, topic) + b"\xe0\x00", b""),
        ],
    )


@v311("7.1.1-1")
async def test_v311_mqtt_7_1_1_1_every_byte_arrives_in_order_both_ways(peers_311: Peers, name: str) -> None:
    dice = random.Random(311)
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await peer.subscribe(name)
    sent = [dice.randbytes(dice.randrange(2_000)) for _ in range(200)]
    stream = b"".join(encode_packet(Publish(name, payload), Version.V311) for payload in sent)
    while stream:  # in pieces that know nothing of packets
        size = dice.choice([1, 10, 1_000, 30_000])
        await publisher.send_bytes(stream[:size])
        stream = stream[size:]
    assert [(await peer.receive(Publish)).payload for _ in sent] == sent
