"""How a connection begins: who is let in, with which answer, and how long a stranger may wait."""

import asyncio
import time
from itertools import islice

import pytest

from penstock.client import PacketStream
from penstock.wire.mqtt import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketProperties,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    ReturnCode,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
    encode_packet,
)
from penstock.wire.mqtt.packets import Request
from tests.doors.mqtt.peers import FOR_EVER, TIMEOUT_S, Peers, both_versions
from tests.support.servers import RunningServer, StartServer

CONNECT_TIMEOUT_S = 1
MAX_CONTROL_BYTES = 65 * 1024
HUGE = b"\xff\xff\xff\x7f"
"""The largest length there is."""


@pytest.fixture(scope="module")
def impatient(start_server: StartServer) -> RunningServer:
    limits = {"connect_timeout_s": CONNECT_TIMEOUT_S, "max_keep_alive_s": 30, "max_connections": 20}
    return start_server({"mqtt": limits, "sessions": {"max_sessions": 3, "max_expiry_s": 60}})


def connect_bytes(level: int, rest: bytes, name: bytes = b"MQTT") -> bytes:
    """A CONNECT; `rest` starts with its flags."""
    body = len(name).to_bytes(2, "big") + name + bytes((level,)) + rest
    return bytes((0x10, len(body))) + body


async def answer_to(peers: Peers, data: bytes, version: Version) -> list[Packet]:
    peer = await peers.open(version)
    await peer.send_bytes(data)
    return await peer.last_words()


# Let in


@both_versions
async def test_connack_comes_before_everything_else(peers: Peers, name: str, version: Version) -> None:
    publisher = await peers.connect()
    await publisher.publish(name, b"kept", retain=True)
    peer = await peers.open(version)
    await peer.send(Connect(name, version), Subscribe(1, (Request(name),)), PingReq())
    assert type(await peer.take()) is ConnAck
    assert await peer.receive(SubAck) == SubAck(1, (0,))
    assert {type(await peer.take()) for _ in range(2)} == {PingResp, Publish}


@both_versions
async def test_packets_in_the_chunk_of_the_connect_are_taken(
    peers: Peers, name: str, version: Version
) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name, qos=2)
    peer = await peers.open(version)
    await peer.send(
        Connect(name, version),
        Publish(name, b"0"),
        Publish(name, b"1", 1, packet_id=1),
        PingReq(),
        Disconnect(),
    )
    assert [type(packet) for packet in await peer.last_words()][:1] == [ConnAck]
    assert [(await watcher.receive(Publish)).payload for _ in range(2)] == [b"0", b"1"]


async def test_connack_of_mqtt_5_tells_the_limits(peers: Peers) -> None:
    told = (await peers.connect("")).connack.properties
    assert told.receive_maximum == 1_000
    assert told.topic_alias_maximum == 10
    assert told.maximum_packet_size == 3968 * 1024 + MAX_CONTROL_BYTES
    assert (told.maximum_qos, told.retain_available) == (None, None)
    assert told.server_keep_alive is None  # none was asked for
    assert told.authentication_method is None  # MQTT-4.12.0-6


async def test_connack_of_mqtt_5_tells_what_was_granted_instead(
    impatient: RunningServer, peers: Peers, name: str
) -> None:
    peer = await peers.connect(name, keep_alive=31, expiry=FOR_EVER, port=impatient.port)
    assert peer.connack.properties.server_keep_alive == 30
    assert peer.connack.properties.session_expiry == 60
    await peer.leave(Disconnect(properties=PacketProperties(session_expiry=0)))
    peer = await peers.connect(name, keep_alive=29, expiry=59, port=impatient.port)
    assert peer.connack.properties.server_keep_alive is None  # MQTT-3.2.2-22
    assert peer.connack.properties.session_expiry is None
    await peer.leave(Disconnect(properties=PacketProperties(session_expiry=0)))


async def test_mqtt_5_client_without_a_name_is_told_the_one_it_got(peers: Peers) -> None:
    first, second = await peers.connect(""), await peers.connect("", clean=False)
    names = [peer.connack.properties.assigned_client_id for peer in (first, second)]
    assert None not in names
    assert names[0] != names[1]  # MQTT-3.2.2-16
    named = await peers.connect(str(names[0]))  # it is a real one
    assert named.connack.properties.assigned_client_id is None
    assert await first.last_words() == [Disconnect(ReasonCode.SESSION_TAKEN_OVER)]


async def test_311_client_without_a_name_needs_a_clean_session(peers: Peers) -> None:
    await peers.connect("", Version.V311)
    refusal = ConnAck(False, ReturnCode.IDENTIFIER_REJECTED)
    assert await peers.refused(Connect("", Version.V311, clean_start=False)) == [refusal]  # MQTT-3.1.3-8


@both_versions
@pytest.mark.parametrize("client_id", ["0", "a" * 23, "ü/+#$ 水", "x" * 60_000], ids=len)
async def test_any_text_is_a_client_id(peers: Peers, version: Version, client_id: str) -> None:
    await peers.connect(client_id, version)


async def test_client_of_mqtt_31_is_served_as_one_of_311(peers: Peers, name: str) -> None:
    client_id = name.encode()
    data = connect_bytes(3, b"\x02\x00\x00\x00" + bytes((len(client_id),)) + client_id, b"MQIsdp")
    peer = await peers.open(Version.V311)
    await peer.send_bytes(data)
    assert await peer.receive(ConnAck) == ConnAck()
    assert await peer.subscribe(name, qos=1) == (1,)


async def test_client_of_mqtt_31_needs_a_name(peers: Peers) -> None:
    data = connect_bytes(3, b"\x02\x00\x00\x00\x00", b"MQIsdp")
    refusal = ConnAck(False, ReturnCode.IDENTIFIER_REJECTED)
    assert await answer_to(peers, data, Version.V311) == [refusal]


# Turned away


@pytest.mark.parametrize(
    ("level", "name", "version", "refusal"),
    [
        (4, b"MQIsdp", Version.V311, ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION),
        (3, b"MQTT", Version.V311, ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION),
        (0, b"MQTT", Version.V311, ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION),
        (6, b"MQTT", Version.V5, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
        (4, b"MQTX", Version.V311, ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION),
        (5, b"MQTX", Version.V5, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    ],
)
async def test_unsupported_version_is_refused_in_words_that_suit_it(
    peers: Peers, level: int, name: bytes, version: Version, refusal: int
) -> None:
    data = connect_bytes(level, b"\x02\x00\x00\x00\x00\x01c", name)
    assert await answer_to(peers, data, version) == [ConnAck(False, refusal)]


@pytest.mark.parametrize(
    ("what", "rest", "reason"),
    [
        ("reserved flag", b"\x03\x00\x00" + b"\x00" + b"\x00\x01c", ReasonCode.MALFORMED_PACKET),
        ("will flags", b"\x0a\x00\x00" + b"\x00" + b"\x00\x01c", ReasonCode.MALFORMED_PACKET),
        ("text", b"\x02\x00\x00" + b"\x00" + b"\x00\x01\xff", ReasonCode.MALFORMED_PACKET),
        ("bytes after the end", b"\x02\x00\x00" + b"\x00" + b"\x00\x01cc", ReasonCode.MALFORMED_PACKET),
        ("window of zero", b"\x02\x00\x00" + b"\x03\x21\x00\x00" + b"\x00\x01c", ReasonCode.PROTOCOL_ERROR),
        (
            "will topic",
            b"\x06\x00\x00" + b"\x00" + b"\x00\x01c" + b"\x00" + b"\x00\x01#" + b"\x00\x00",
            ReasonCode.TOPIC_NAME_INVALID,
        ),
    ],
)
async def test_broken_connect_of_mqtt_5_is_answered_with_its_reason(
    peers: Peers, what: str, rest: bytes, reason: ReasonCode
) -> None:
    assert await answer_to(peers, connect_bytes(5, rest), Version.V5) == [ConnAck(False, reason)]


@pytest.mark.parametrize(
    "rest", [b"\x03\x00\x00\x00\x01c", b"\x02\x00\x00\x00\x01\xff", b"\x42\x00\x00\x00\x01c\x00\x00"]
)
async def test_broken_connect_of_311_is_not_answered(peers: Peers, rest: bytes) -> None:
    assert await answer_to(peers, connect_bytes(4, rest), Version.V311) == []  # MQTT-3.1.4-1


@both_versions
async def test_connect_that_is_too_large_is_refused_from_its_length(peers: Peers, version: Version) -> None:
    data = b"\x10" + HUGE + b"\x00\x04MQTT" + bytes((version,))
    refusals = [ConnAck(False, ReasonCode.PACKET_TOO_LARGE)] if version is Version.V5 else []
    assert await answer_to(peers, data, version) == refusals


async def test_connect_may_be_as_large_as_its_limit_and_no_larger(peers: Peers, name: str) -> None:
    will = Will(name, bytes(65_000))
    size = len(encode_packet(Connect(name, Version.V5, will=will), Version.V5))
    fits = Connect(name + "x" * (MAX_CONTROL_BYTES - size), Version.V5, will=will)
    assert len(encode_packet(fits, Version.V5)) == MAX_CONTROL_BYTES
    await peers.connect(fits.client_id, will=will)
    too_large = Connect(fits.client_id + "x", Version.V5, will=will)
    assert await peers.refused(too_large) == [ConnAck(False, ReasonCode.PACKET_TOO_LARGE)]


@pytest.mark.parametrize(
    "packet",
    [
        Publish("a", b"x"),
        Publish("a", b"x", 1, packet_id=1),
        Subscribe(1, (Request("a"),)),
        PingReq(),
        Disconnect(),
        PubAck(1),
    ],
    ids=lambda packet: type(packet).__name__,
)
@both_versions
async def test_anything_but_connect_first_closes_without_a_word(
    peers: Peers, version: Version, packet: Packet
) -> None:
    assert await answer_to(peers, encode_packet(packet, version), version) == []  # MQTT-3.1.0-1


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost:1883\r\nUser-Agent: curious/1.0\r\nAccept: */*\r\n\r\n",
        b"\x00" * 20,
        b"\x16\x03\x01\x02\x00" + bytes(300),
        b"\xff" * 9,
    ],
)
async def test_what_is_not_mqtt_is_closed_without_a_word(peers: Peers, data: bytes) -> None:
    assert await answer_to(peers, data, Version.V311) == []


async def test_large_publish_before_connect_is_refused_from_its_length(
    server: RunningServer, peers: Peers
) -> None:
    assert await answer_to(peers, b"\x30" + (MAX_CONTROL_BYTES * 2).to_bytes(3, "big"), Version.V311) == []


async def test_extended_authentication_is_refused_by_its_method(peers: Peers) -> None:
    asked = PacketProperties(authentication_method="SCRAM-SHA-1")
    refusal = ConnAck(False, ReasonCode.BAD_AUTHENTICATION_METHOD)
    assert await peers.refused(Connect("", Version.V5, properties=asked)) == [refusal]  # MQTT-4.12.0-1


async def test_client_that_takes_hardly_any_bytes_is_refused(peers: Peers, name: str) -> None:
    asked = PacketProperties(maximum_packet_size=12)
    refusal = ConnAck(False, ReasonCode.PACKET_TOO_LARGE)
    assert await peers.refused(Connect(name, Version.V5, properties=asked)) == [refusal]
    again = await peers.connect(name, clean=False)
    assert not again.connack.session_present


@both_versions
async def test_session_too_many_is_refused(
    impatient: RunningServer, peers: Peers, name: str, version: Version
) -> None:
    there = [await peers.connect(f"{name}-{number}", port=impatient.port) for number in range(3)]
    code = ReasonCode.QUOTA_EXCEEDED if version is Version.V5 else ReturnCode.SERVER_UNAVAILABLE
    assert await peers.refused(Connect(name, version), impatient.port) == [ConnAck(False, code)]
    await there[0].leave()
    await peers.connect(name, version, port=impatient.port)


@both_versions
async def test_what_follows_a_refused_connect_is_ignored(peers: Peers, name: str, version: Version) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name)
    peer = await peers.open(version)
    bad_will = Will(f"$SYS/{name}", b"")
    await peer.send(Connect(name, version, will=bad_will), Publish(name, b"not this"), PingReq())
    assert len(await peer.last_words()) == 1  # the refusal; MQTT-3.1.4-5
    assert await watcher.fence() == []


# Strange packets later


@both_versions
async def test_second_connect_is_a_protocol_error(peers: Peers, name: str, version: Version) -> None:
    peer = await peers.connect(name, version)
    await peer.send(Connect(name, version))
    words = [Disconnect(ReasonCode.PROTOCOL_ERROR)] if version is Version.V5 else []
    assert await peer.last_words() == words  # MQTT-3.1.0-2


async def test_second_connect_in_the_same_chunk_is_a_protocol_error(peers: Peers, name: str) -> None:
    peer = await peers.open()
    await peer.send(Connect(name, Version.V5), Connect(name, Version.V5))
    words = await peer.last_words()
    assert [type(word) for word in words] == [ConnAck, Disconnect]
    assert words[1] == Disconnect(ReasonCode.PROTOCOL_ERROR)


SERVERS_OWN = [
    ConnAck(),
    SubAck(1, (0,)),
    UnsubAck(1, (0,)),
    PingResp(),
    Auth(ReasonCode.RE_AUTHENTICATE, PacketProperties(authentication_method="x")),
]


@pytest.mark.parametrize("packet", SERVERS_OWN, ids=lambda packet: type(packet).__name__)
@both_versions
async def test_what_only_a_server_sends_is_a_protocol_error(
    peers: Peers, version: Version, packet: Packet
) -> None:
    peer = await peers.connect("", version)
    await peer.send_bytes(encode_packet(packet, Version.V5 if type(packet) is Auth else version))
    if version is Version.V5:
        assert await peer.last_words() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]
    else:
        assert await peer.last_words() == []


@both_versions
@pytest.mark.parametrize("packet", [PubAck(7), PubRec(7), PubRel(7), PubComp(7), Unsubscribe(7, ("x",))])
async def test_acknowledgement_of_nothing_does_no_harm(
    peers: Peers, version: Version, packet: Packet
) -> None:
    peer = await peers.connect("", version)
    await peer.send(packet)
    unknown = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if version is Version.V5 else ReasonCode.SUCCESS
    none_such = (ReasonCode.NO_SUBSCRIPTION_EXISTED,) if version is Version.V5 else ()
    answers = {
        PubRec: [PubRel(7, unknown)],
        PubRel: [PubComp(7, unknown)],
        Unsubscribe: [UnsubAck(7, none_such)],
    }
    assert await peer.fence() == answers.get(type(packet), [])


# Time


async def test_who_never_says_connect_is_closed_in_time(impatient: RunningServer, peers: Peers) -> None:
    peer = await peers.open(port=impatient.port)
    began = time.monotonic()
    assert await peer.last_words() == []
    assert time.monotonic() - began > CONNECT_TIMEOUT_S * 0.9


async def test_connect_that_trickles_in_does_not_put_its_end_off(
    impatient: RunningServer, peers: Peers, name: str
) -> None:
    peer = await peers.open(port=impatient.port)
    ended = asyncio.create_task(peer.last_words())
    for byte in encode_packet(Connect(name * 3, Version.V5), Version.V5):
        peer.stream.write_bytes(bytes((byte,)))
        await asyncio.wait([ended], timeout=0.2)
        if ended.done():
            break
    assert ended.done()
    assert await ended == []


async def test_connection_too_many_is_closed_at_once_and_the_others_stay(
    start_server: StartServer, peers: Peers
) -> None:
    port = start_server({"mqtt": {"max_connections": 20, "connect_timeout_s": 60}}).port
    first = await peers.connect("", port=port)
    more = [await PacketStream.open("127.0.0.1", port) for _ in range(30)]
    ends = [asyncio.create_task(stream.wait_closed(TIMEOUT_S)) for stream in more]
    for closed in islice(asyncio.as_completed(ends), 11):
        await closed
    for end in ends:
        end.cancel()
    await asyncio.gather(*ends, return_exceptions=True)
    assert await first.fence() == []
    for stream in more:
        await stream.close()
