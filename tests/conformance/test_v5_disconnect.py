"""MQTT 5.0, section 3.14: DISCONNECT."""

import pytest

from penstock.wire.mqtt import (
    Connect,
    Disconnect,
    PacketProperties,
    PingReq,
    Publish,
    ReasonCode,
    Request,
    Subscribe,
    Version,
    Will,
    encode_packet,
)
from tests.conformance.endings import ending_after, ending_of, raw
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import FOR_EVER, Peers, payloads
from tests.support.servers import RunningServer, StartServer

TABLE = {0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, *range(0x93, 0xA3)}
"""The codes of a server's DISCONNECT."""


# Before CONNACK


@pytest.mark.parametrize(
    "data",
    [
        encode_packet(PingReq(), Version.V5),
        encode_packet(Publish("early"), Version.V5),
        encode_packet(Disconnect(), Version.V5),
        raw(0xF0, b"\x18\x00"),
        raw(0x10, b"\x00\x04MQTT\x05\x03\x00\x00\x00\x00\x00"),
        raw(0x10, b"\x00\x04MQTT\x06\x02\x00\x00\x00\x00\x00"),
        encode_packet(
            Connect("", Version.V5, properties=PacketProperties(maximum_packet_size=8)), Version.V5
        ),
        encode_packet(Connect("", Version.V5, will=Will("$SYS/not/mine", b"")), Version.V5),
    ],
    ids=["ping", "publish", "disconnect", "auth", "flags", "version", "size", "will"],
)
@v5("3.14.0-1")
async def test_v5_mqtt_3_14_0_1_who_was_not_let_in_gets_no_disconnect(peers: Peers, data: bytes) -> None:
    peer = await peers.open()
    await peer.send_bytes(data)
    words = await peer.last_words()
    assert not any(isinstance(packet, Disconnect) for packet in words), words


@v5("3.14.0-1")
async def test_v5_mqtt_3_14_0_1_server_that_stops_says_so_only_to_whom_it_let_in(
    start_server: StartServer, peers: Peers
) -> None:
    server = start_server()
    stranger, guest = await peers.open(port=server.port), await peers.connect(port=server.port)
    server.terminate()
    assert await ending_of(guest) == ReasonCode.SERVER_SHUTTING_DOWN
    assert await stranger.last_words() == []


# What it holds


@pytest.mark.parametrize("flags", [1, 2, 8, 15])
@v5("3.14.1-1")
async def test_v5_mqtt_3_14_1_1_disconnect_with_reserved_flags_is_malformed(peers: Peers, flags: int) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, raw(0xE0 | flags, b"")) == ReasonCode.MALFORMED_PACKET


@v5("3.14.1-1")
async def test_v5_mqtt_3_14_1_1_malformed_goodbye_leaves_the_will_in_place(peers: Peers, name: str) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name)
    peer = await peers.connect(will=Will(name, b"last will"))
    await ending_after(peer, raw(0xE1, b""))
    assert payloads([await watcher.receive(Publish)]) == [b"last will"]


@pytest.mark.parametrize("code", [0x01, 0x10, 0x18, 0x84, 0x91, 0xA3, 0xFF], ids=hex)
@v5("3.14.2-1")
async def test_v5_mqtt_3_14_2_1_code_from_another_table_is_a_protocol_error(peers: Peers, code: int) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, raw(0xE0, bytes((code,)))) == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x00", ReasonCode.MALFORMED_PACKET),
        (encode_packet(Connect("", Version.V5), Version.V5), ReasonCode.PROTOCOL_ERROR),
        (encode_packet(Publish("a/+"), Version.V5), ReasonCode.TOPIC_NAME_INVALID),
        (raw(0x30, b"\x00\x01t\x03\x23\xff\xff"), ReasonCode.TOPIC_ALIAS_INVALID),
        (b"\x30\xff\xff\xff\x7f", ReasonCode.PACKET_TOO_LARGE),
    ],
    ids=lambda value: getattr(value, "name", None) or "packet",
)
@v5("3.14.2-1", "3.14.2-2")
async def test_v5_mqtt_3_14_2_1_server_says_why_it_ends_a_connection(
    peers: Peers, name: str, data: bytes, reason: ReasonCode
) -> None:
    peer = await peers.connect(name, expiry=1000)
    await peer.send_bytes(data)
    (word,) = await peer.last_words()
    assert isinstance(word, Disconnect)
    assert word.reason == reason
    assert word.reason in TABLE
    assert word.properties.session_expiry is None


@v5("3.14.2-1", "3.14.2-2")
async def test_v5_mqtt_3_14_2_2_who_is_taken_over_is_told_without_an_expiry(peers: Peers, name: str) -> None:
    first = await peers.connect(name, expiry=1000)
    await peers.connect(name, expiry=2000)
    (word,) = await first.last_words()
    assert isinstance(word, Disconnect)
    assert (word.reason, word.properties.session_expiry) == (ReasonCode.SESSION_TAKEN_OVER, None)


# What follows


@v5("3.14.4-1", "3.14.4-2")
async def test_v5_mqtt_3_14_4_1_after_its_disconnect_the_server_sends_nothing_and_closes(
    peers: Peers, name: str
) -> None:
    peer, publisher = await peers.connect(name, expiry=FOR_EVER), await peers.connect()
    await peer.subscribe(name, qos=1)
    questions = encode_packet(Subscribe(9, (Request(f"{name}/more"),)), Version.V5)
    questions += encode_packet(Publish(name, b"", 1, packet_id=9), Version.V5)
    questions += encode_packet(PingReq(), Version.V5)
    await peer.send_bytes(b"\x00\x00" + questions)
    await publisher.publish(name, b"too late")
    assert await ending_of(peer) == ReasonCode.MALFORMED_PACKET


@v5("3.14.4-1", "3.14.4-2")
async def test_v5_mqtt_3_14_4_1_after_a_clients_disconnect_the_server_takes_nothing_and_closes(
    peers: Peers, name: str
) -> None:
    peer, watcher = await peers.connect(), await peers.connect()
    await watcher.subscribe(name)
    await peer.send(Publish(name, b"before"), Disconnect(), Publish(name, b"after"), PingReq())
    assert await peer.last_words() == []
    assert payloads(await watcher.fence()) == [b"before"]


@pytest.mark.parametrize(
    ("goodbye", "wanted"),
    [
        (Disconnect(), []),
        (Disconnect(ReasonCode.DISCONNECT_WITH_WILL), [b"last will"]),
        (Disconnect(ReasonCode.UNSPECIFIED_ERROR), [b"last will"]),
    ],
    ids=["plain", "with-will", "error"],
)
@v5("3.14.4-3")
async def test_v5_mqtt_3_14_4_3_plain_goodbye_takes_the_will_with_it(
    peers: Peers, name: str, goodbye: Disconnect, wanted: list[bytes]
) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name)
    peer = await peers.connect(will=Will(name, b"last will"))
    await peer.leave(goodbye)
    assert payloads(await watcher.fence()) == wanted


@v5("3.14.4-3")
async def test_v5_mqtt_3_14_4_3_will_that_was_taken_along_does_not_come_when_the_session_ends(
    server: RunningServer, peers: Peers, name: str
) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name)
    peer = await peers.connect(name, expiry=FOR_EVER, will=Will(name, b"last will"))
    await peer.leave()
    await (await peers.connect(name)).leave()
    assert await watcher.fence() == []
