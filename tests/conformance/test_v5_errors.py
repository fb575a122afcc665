"""MQTT 5.0, section 4.13: what the server does about errors."""

import pytest

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    PacketProperties,
    PubAck,
    Publish,
    ReasonCode,
    Version,
    Will,
)
from tests.conformance.endings import ending_after, raw
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import Peers, payloads

MALFORMED, PROTOCOL = ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR

BAD_PACKETS = {
    "packet type 0": (b"\x00\x00", MALFORMED),
    "length of five bytes": (b"\xc0\xff\xff\xff\xff\x01", MALFORMED),
    "ping with a body": (raw(0xC0, b"\x00"), MALFORMED),
    "publish at QoS 3": (raw(0x36, b"\x00\x01t\x00\x01\x00"), MALFORMED),
    "publish cut in its topic": (raw(0x30, b"\x00\x09t"), MALFORMED),
    "publish with packet id 0": (raw(0x32, b"\x00\x01t\x00\x00\x00"), MALFORMED),
    "publish with an unknown property": (raw(0x30, b"\x00\x01t\x02\x7f\x00"), MALFORMED),
    "publish with a property of another packet": (raw(0x30, b"\x00\x01t\x03\x21\x00\x01"), MALFORMED),
    "publish with a property twice": (raw(0x30, b"\x00\x01t\x04\x01\x00\x01\x00"), PROTOCOL),
    "publish with payload format 2": (raw(0x30, b"\x00\x01t\x02\x01\x02"), PROTOCOL),
    "publish with an unknown alias": (raw(0x30, b"\x00\x00\x03\x23\x00\x01"), PROTOCOL),
    "publish with a subscription identifier": (raw(0x30, b"\x00\x01t\x02\x0b\x01"), PROTOCOL),
    "puback without a packet id": (raw(0x40, b""), MALFORMED),
    "puback with packet id 0": (raw(0x40, b"\x00\x00"), MALFORMED),
    "subscribe with packet id 0": (raw(0x82, b"\x00\x00\x00\x00\x01t\x00"), MALFORMED),
    "subscribe at QoS 3": (raw(0x82, b"\x00\x01\x00\x00\x01t\x03"), PROTOCOL),
    "subscribe with retain handling 3": (raw(0x82, b"\x00\x01\x00\x00\x01t\x30"), PROTOCOL),
    "subscribe with identifier 0": (raw(0x82, b"\x00\x01\x02\x0b\x00\x00\x01t\x00"), PROTOCOL),
    "subscribe with two identifiers": (raw(0x82, b"\x00\x01\x04\x0b\x01\x0b\x02\x00\x01t\x00"), PROTOCOL),
    "unsubscribe with packet id 0": (raw(0xA2, b"\x00\x00\x00\x00\x01t"), MALFORMED),
    "connack from a client": (raw(0x20, b"\x00\x00\x00"), PROTOCOL),
    "suback from a client": (raw(0x90, b"\x00\x01\x00\x00"), PROTOCOL),
    "pingresp from a client": (raw(0xD0, b""), PROTOCOL),
    "second connect": (raw(0x10, b"\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00"), PROTOCOL),
    "disconnect with an expiry where there was none": (
        raw(0xE0, b"\x00\x05\x11\x00\x00\x00\x01"),
        PROTOCOL,
    ),
    "disconnect with an expiry twice": (
        raw(0xE0, b"\x00\x0a\x11\x00\x00\x00\x00\x11\x00\x00\x00\x00"),
        PROTOCOL,
    ),
}
"""What no client may send, and what it is told."""

BAD_CONNECTS = {
    "reserved flag": (b"\x03\x00\x00\x00\x00\x00", MALFORMED),
    "will QoS without a will": (b"\x0a\x00\x00\x00\x00\x00", MALFORMED),
    "cut": (b"\x02\x00\x00\x00\x00", MALFORMED),
    "receive maximum 0": (b"\x02\x00\x00\x03\x21\x00\x00\x00\x00", PROTOCOL),
    "maximum packet size 0": (b"\x02\x00\x00\x05\x27\x00\x00\x00\x00\x00\x00", PROTOCOL),
    "expiry twice": (b"\x02\x00\x00\x0a\x11\x00\x00\x00\x01\x11\x00\x00\x00\x01\x00\x00", PROTOCOL),
    "problem information 2": (b"\x02\x00\x00\x02\x17\x02\x00\x00", PROTOCOL),
    "data without a method": (b"\x02\x00\x00\x04\x16\x00\x01x\x00\x00", PROTOCOL),
}
"""CONNECT packets, without what all of them begin with, that cannot be accepted."""


@pytest.mark.parametrize("case", BAD_PACKETS)
@v5("4.13.1-1", "4.13.2-1")
async def test_v5_mqtt_4_13_1_1_bad_packet_ends_the_connection_with_its_reason(
    peers: Peers, case: str
) -> None:
    data, reason = BAD_PACKETS[case]
    assert await ending_after(await peers.connect(), data) == reason


@pytest.mark.parametrize("case", BAD_CONNECTS)
@v5("4.13.1-1", "4.13.2-1")
async def test_v5_mqtt_4_13_1_1_bad_connect_is_answered_with_its_reason_and_closed(
    peers: Peers, case: str
) -> None:
    body, reason = BAD_CONNECTS[case]
    peer = await peers.open()
    await peer.send_bytes(raw(0x10, b"\x00\x04MQTT\x05" + body))
    (word,) = await peer.last_words()
    assert isinstance(word, ConnAck)
    assert (word.session_present, word.reason) == (False, reason)


@v5("4.13.1-1")
async def test_v5_mqtt_4_13_1_1_others_are_not_disturbed(peers: Peers, name: str) -> None:
    other = await peers.connect()
    await other.subscribe(name)
    peer = await peers.connect()
    await peer.send(Publish(name, b"before"))
    assert await ending_after(peer, b"\x00\x00") == MALFORMED
    assert payloads(await other.fence()) == [b"before"]


@pytest.mark.parametrize(
    "packet",
    [
        Connect("", Version.V5, will=Will("$SYS/not/mine", b"")),
        Connect("", Version.V5, properties=PacketProperties(authentication_method="none such")),
        Connect("", Version.V5, properties=PacketProperties(maximum_packet_size=1)),
    ],
    ids=["will", "method", "size"],
)
@v5("4.13.2-1")
async def test_v5_mqtt_4_13_2_1_refusing_connack_is_followed_by_the_end(
    peers: Peers, packet: Connect
) -> None:
    words = await peers.refused(packet)
    assert len(words) <= 1
    assert all(isinstance(word, ConnAck) and word.reason >= 0x80 for word in words)


@pytest.mark.parametrize(
    "reason", [0x80, 0x81, 0x82, 0x83, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99], ids=hex
)
@v5("4.13.2-1")
async def test_v5_mqtt_4_13_2_1_clients_disconnect_with_an_error_is_followed_by_the_end(
    peers: Peers, name: str, reason: int
) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name, qos=1)
    peer = await peers.connect(will=Will(name, b"last will", 1))
    await peer.send(Disconnect(reason))
    assert await peer.last_words() == []
    message = await watcher.receive(Publish)
    await watcher.send(PubAck(message.packet_id))
    assert message.payload == b"last will"
