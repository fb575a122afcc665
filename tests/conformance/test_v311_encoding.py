"""MQTT 3.1.1, sections 1.5 and 2, and the flags of 3.6, 3.8, 3.10 and 3.14: how packets are written."""

import pytest

from penstock.wire.mqtt import Packet, PubAck, PubComp, Publish, PubRec, PubRel, Will
from tests.conformance.statements import v311
from tests.conformance.v311_bytes import connect, converse, ending, frame, refusal, text
from tests.doors.mqtt.peers import Peers, every_qos, payloads
from tests.support.servers import RunningServer

CLEAN, WILL, USER = 0x02, 0x04, 0x80
ID = b"\x00\x01"
BAD_TEXTS = [
    b"\xff",  # in no text at all
    b"\xc3",  # half a character
    b"a\x80",  # the other half
    b"\xc0\xaf",  # a slash in more bytes than it needs
    b"\xed\xa0\x80",  # the first surrogate
    b"\xed\xbf\xbf",  # the last
    b"\xf4\x90\x80\x80",  # beyond the last character
]
FIRST = {
    "client id": lambda content: connect(CLEAN, text(content)),
    "will topic": lambda content: connect(CLEAN | WILL, text("c"), text(content), text("")),
    "user name": lambda content: connect(CLEAN | USER, text("c"), text(content)),
}
LATER = {
    "topic": lambda content: frame(0x30, text(content)),
    "filter": lambda content: frame(0x82, ID + text(content) + b"\x00"),
    "filter to remove": lambda content: frame(0xA2, ID + text(content)),
}
holders = pytest.mark.parametrize("holder", [*FIRST, *LATER])

FLAGS = {
    "connect": (0, connect(CLEAN, text("c"))),
    "puback": (0, frame(0x40, ID)),
    "pubrec": (0, frame(0x50, ID)),
    "pubrel": (2, frame(0x62, ID)),
    "pubcomp": (0, frame(0x70, ID)),
    "subscribe": (2, frame(0x82, ID + text("a") + b"\x00")),
    "unsubscribe": (2, frame(0xA2, ID + text("a"))),
    "pingreq": (0, b"\xc0\x00"),
    "disconnect": (0, b"\xe0\x00"),
}
"""The flags that each packet of a client has, and such a packet."""


async def words_after(peers: Peers, holder: str, content: bytes) -> list[Packet]:
    """What the server says before it closes to a packet with this text in it."""
    if holder in FIRST:
        return await refusal(peers, FIRST[holder](content))
    return await ending(peers, LATER[holder](content))


def with_other_flags(packet: str) -> list[bytes]:
    """A packet with each of the flags it must not have."""
    right, data = FLAGS[packet]
    return [bytes((data[0] & 0xF0 | flags,)) + data[1:] for flags in range(16) if flags != right]


# Text


@holders
@v311("1.5.3-1", "3.1.3-4", "3.1.3-10", "3.1.3-11", "3.3.2-1", "3.8.3-1", "3.10.3-1")
async def test_v311_mqtt_1_5_3_1_text_that_is_not_utf_8_closes_the_connection(
    peers_311: Peers, holder: str
) -> None:
    for bad in BAD_TEXTS:
        assert await words_after(peers_311, holder, bad) == []


@holders
@v311("1.5.3-2", "4.7.3-2")
async def test_v311_mqtt_1_5_3_2_null_character_closes_the_connection(peers_311: Peers, holder: str) -> None:
    for bad in (b"\x00", b"a\x00", b"\x00a"):
        assert await words_after(peers_311, holder, bad) == []


@v311("1.5.3-3")
async def test_v311_mqtt_1_5_3_3_byte_order_mark_is_a_character(peers_311: Peers, name: str) -> None:
    peer = await peers_311.connect()
    await peer.subscribe(f"\ufeff{name}", name, f"{name}/\ufeff")
    for topic in (f"\ufeff{name}", name, f"{name}/\ufeff", f"{name}/"):
        await peer.publish(topic, topic.encode(), 0)
    got = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert [message.topic for message in got] == [f"\ufeff{name}", name, f"{name}/\ufeff"]
    assert got[0].topic.encode()[:3] == b"\xef\xbb\xbf"


# Flags


@v311("2.2.2-1", "2.3.1-5")
async def test_v311_mqtt_2_2_2_1_server_writes_the_flags_of_the_table(
    server: RunningServer, name: str
) -> None:
    topic = text(name)
    await converse(
        server.port,
        [
            (connect(CLEAN, text(name)), b"\x20\x02\x00\x00"),
            (frame(0x82, ID + topic + b"\x02"), b"\x90\x03" + ID + b"\x02"),
            (frame(0x30, topic + b"x"), frame(0x30, topic + b"x")),  # at QoS 0 there is no packet id
            (frame(0x31, topic + b"\x00\x05"), frame(0x30, topic + b"\x00\x05")),  # two bytes of payload
            (frame(0x32, topic + b"\x00\x07x"), b"\x40\x02\x00\x07" + frame(0x32, topic + ID + b"x")),
            (frame(0x34, topic + b"\x00\x08x"), b"\x50\x02\x00\x08" + frame(0x34, topic + b"\x00\x02x")),
            (frame(0x62, b"\x00\x08"), b"\x70\x02\x00\x08"),
            (frame(0x50, b"\x00\x02"), b"\x62\x02\x00\x02"),
            (frame(0xA2, ID + topic), b"\xb0\x02" + ID),
            (b"\xc0\x00", b"\xd0\x00"),
        ],
    )


@pytest.mark.parametrize("packet", ["puback", "pubrec", "pubcomp", "pingreq"])
@v311("2.2.2-2")
async def test_v311_mqtt_2_2_2_2_other_flags_close_the_connection(peers_311: Peers, packet: str) -> None:
    for data in with_other_flags(packet):
        assert await ending(peers_311, data) == []


@v311("2.2.2-2")
async def test_v311_mqtt_2_2_2_2_connect_with_flags_is_not_let_in(peers_311: Peers) -> None:
    for data in with_other_flags("connect"):
        assert await refusal(peers_311, data) == []


@v311("3.6.1-1", "2.2.2-2")
async def test_v311_mqtt_3_6_1_1_pubrel_with_other_flags_closes_the_connection(peers_311: Peers) -> None:
    for data in with_other_flags("pubrel"):
        assert await ending(peers_311, data) == []


@v311("3.8.1-1", "2.2.2-2")
async def test_v311_mqtt_3_8_1_1_subscribe_with_other_flags_closes_the_connection(peers_311: Peers) -> None:
    for data in with_other_flags("subscribe"):
        assert await ending(peers_311, data) == []


@v311("3.10.1-1", "2.2.2-2")
async def test_v311_mqtt_3_10_1_1_unsubscribe_with_other_flags_closes_the_connection(
    peers_311: Peers,
) -> None:
    for data in with_other_flags("unsubscribe"):
        assert await ending(peers_311, data) == []


@v311("3.14.1-1", "2.2.2-2")
async def test_v311_mqtt_3_14_1_1_disconnect_with_flags_is_no_goodbye(peers_311: Peers, name: str) -> None:
    watcher = await peers_311.connect()
    await watcher.subscribe(name)
    for data in with_other_flags("disconnect"):
        peer = await peers_311.connect(will=Will(name, b"gone"))
        await peer.send_bytes(data)
        assert await peer.last_words() == []
        assert payloads(await watcher.fence()) == [b"gone"]


# Packet identifiers


@pytest.mark.parametrize(
    "data",
    [
        frame(0x32, text("a") + b"\x00\x00"),
        frame(0x34, text("a") + b"\x00\x00"),
        frame(0x82, b"\x00\x00" + text("a") + b"\x00"),
        frame(0xA2, b"\x00\x00" + text("a")),
    ],
    ids=["publish at QoS 1", "publish at QoS 2", "subscribe", "unsubscribe"],
)
@v311("2.3.1-1")
async def test_v311_mqtt_2_3_1_1_packet_id_of_zero_closes_the_connection(
    peers_311: Peers, data: bytes
) -> None:
    assert await ending(peers_311, data) == []


@v311("2.3.1-1", "2.3.1-4")
async def test_v311_mqtt_2_3_1_4_server_takes_packet_ids_that_are_not_in_use(
    peers_311: Peers, name: str
) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await peer.subscribe(name, qos=2)
    for _ in range(2):
        await publisher.publish(name, b"held", 1)
        await publisher.publish(name, b"held", 2)
    held = [(await peer.receive(Publish)).packet_id for _ in range(4)]
    assert 0 not in held
    assert len(set(held)) == 4
    await peer.send(PubRec(held[1]))
    assert await peer.receive(PubRel) == PubRel(held[1])  # in use until PUBCOMP
    for _ in range(50):
        await publisher.publish(name, b"x", 1)
        packet_id = (await peer.receive(Publish)).packet_id
        assert packet_id not in {0, *held}
        await peer.send(PubAck(packet_id))


@pytest.mark.parametrize("packet_id", [1, 0x0100, 65_535])
@v311("2.3.1-6")
async def test_v311_mqtt_2_3_1_6_acknowledgements_repeat_the_packet_id(
    peers_311: Peers, name: str, packet_id: int
) -> None:
    peer = await peers_311.connect()
    await peer.send(Publish(name, b"", 1, packet_id=packet_id))
    assert await peer.receive(PubAck) == PubAck(packet_id)
    await peer.send(Publish(name, b"", 2, packet_id=packet_id))
    assert await peer.receive(PubRec) == PubRec(packet_id)
    await peer.send(PubRel(packet_id))
    assert await peer.receive(PubComp) == PubComp(packet_id)


@v311("2.3.1-6")
async def test_v311_mqtt_2_3_1_6_pubrel_repeats_the_packet_id(peers_311: Peers, name: str) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await peer.subscribe(name, qos=2)
    for _ in range(3):
        await publisher.publish(name, b"", 2)
    ids = [(await peer.receive(Publish)).packet_id for _ in range(3)]
    for packet_id in reversed(ids):
        await peer.send(PubRec(packet_id))
        assert await peer.receive(PubRel) == PubRel(packet_id)


@pytest.mark.parametrize("packet_id", [b"\x00\x01", b"\x01\x00", b"\xff\xff"])
@v311("2.3.1-7", "3.8.4-2", "3.10.4-4")
async def test_v311_mqtt_2_3_1_7_suback_and_unsuback_repeat_the_packet_id(
    server: RunningServer, name: str, packet_id: bytes
) -> None:
    await converse(
        server.port,
        [
            (connect(CLEAN, text(name)), b"\x20\x02\x00\x00"),
            (frame(0x82, packet_id + text(name) + b"\x00"), b"\x90\x03" + packet_id + b"\x00"),
            (frame(0xA2, packet_id + text(name)), b"\xb0\x02" + packet_id),
        ],
    )


@every_qos
@v311("2.3.1-5")
async def test_v311_mqtt_2_3_1_5_only_qos_0_has_no_packet_id(peers_311: Peers, name: str, qos: int) -> None:
    peer = await peers_311.connect()
    await peer.subscribe(name, qos=2)
    packet_id = b"\x01\x02" if qos else b""
    await peer.send_bytes(frame(0x30 | qos << 1, text(name) + packet_id + b"\x03\x04"))
    got = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert [(message.payload, bool(message.packet_id)) for message in got] == [(b"\x03\x04", qos > 0)]
