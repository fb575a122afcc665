"""What comes in as PUBLISH: acknowledged by its QoS, carried whole, and within what was agreed."""

import asyncio

import pytest

from penstock.wire.mqtt import (
    Disconnect,
    Packet,
    PacketProperties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    Version,
    encode_packet,
)
from penstock.wire.mqtt.packets import Request
from tests.doors.mqtt.peers import Peers, both_versions, every_qos, payloads
from tests.support.servers import RunningServer, StartServer, is_on_disk

MIB = 1024 * 1024
LARGEST_PAYLOAD = 3968 * 1024
LIMIT_BYTES = LARGEST_PAYLOAD + 65 * 1024
"""The largest PUBLISH by default."""


@pytest.fixture(scope="module")
def narrow(start_server: StartServer) -> RunningServer:
    """A server with small limits."""
    return start_server(
        {
            "mqtt": {"receive_maximum": 5, "topic_alias_maximum": 2, "max_payload_bytes": 1000},
            "topic": {"max_bytes": 50, "max_levels": 4, "max_topics": 20},
        }
    )


def endings(version: Version, reason: ReasonCode) -> list[Packet]:
    """How a connection of this version is told why it ends."""
    return [Disconnect(reason)] if version is Version.V5 else []


# Acknowledged


@both_versions
@every_qos
async def test_message_is_delivered_once_and_acknowledged_by_its_qos(
    peers: Peers, name: str, version: Version, qos: int
) -> None:
    peer, watcher = await peers.connect("", version), await peers.connect("", version)
    await watcher.subscribe(name, qos=2)
    await peer.publish(name, b"hello", qos)
    assert await watcher.receive(Publish) == Publish(name, b"hello", qos, packet_id=1 if qos else 0)
    assert await peer.fence() == []
    assert await watcher.fence() == []


@both_versions
async def test_qos_2_is_passed_on_once_however_often_it_comes(
    peers: Peers, name: str, version: Version
) -> None:
    peer, watcher = await peers.connect("", version), await peers.connect()
    await watcher.subscribe(name)
    message = Publish(name, b"x", 2, packet_id=3)
    for _ in range(3):
        await peer.send(message)
        assert await peer.receive(PubRec) == PubRec(3)  # MQTT-4.3.3-10
    for _ in range(2):
        await peer.send(PubRel(3))
        await peer.receive(PubComp)
    assert payloads(await watcher.fence()) == [b"x"]
    await peer.send(message)
    await peer.receive(PubRec)
    assert payloads(await watcher.fence()) == [b"x"]  # after PUBCOMP it is a new one, MQTT-4.3.3-12


@both_versions
async def test_qos_1_is_passed_on_as_often_as_it_comes(peers: Peers, name: str, version: Version) -> None:
    peer, watcher = await peers.connect("", version), await peers.connect("", version)
    await watcher.subscribe(name, qos=1)
    await peer.send(Publish(name, b"x", 1, packet_id=3), Publish(name, b"x", 1, dup=True, packet_id=3))
    assert [await peer.receive(PubAck) for _ in range(2)] == [PubAck(3), PubAck(3)]
    again = await watcher.receive_all(2)
    assert not any(message.dup for message in again)  # MQTT-3.3.1-3: the sender's flag is the sender's


@both_versions
async def test_acknowledgements_keep_the_order_of_the_messages(
    peers: Peers, name: str, version: Version
) -> None:
    peer, reader = await peers.connect("", version), await peers.connect()
    await reader.subscribe(name)
    numbers = [5, 3, 9, 1, 65_535]
    await peer.send(*(Publish(name, b"", 1 + n % 2, packet_id=n) for n in numbers))
    got = [await peer.take() for _ in numbers]
    assert got == [PubAck(n) if n % 2 == 0 else PubRec(n) for n in numbers]


async def test_unknown_packet_ids_of_qos_2_are_named(peers: Peers) -> None:
    peer = await peers.connect()
    await peer.send(PubRel(77), PubRec(78))
    assert await peer.receive(PubComp) == PubComp(77, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    assert await peer.receive(PubRel) == PubRel(78, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)


@both_versions
async def test_order_is_kept_across_chunks_qos_and_topics(
    peers: Peers, name: str, version: Version, scale: int
) -> None:
    peer, watcher = await peers.connect("", version), await peers.connect("", version)
    await watcher.subscribe(f"{name}/#", qos=2)
    count = 3_000 * scale
    data = b"".join(
        encode_packet(Publish(f"{name}/{number % 7}", b"%d" % number), version) for number in range(count)
    )
    await peer.send_bytes(data)
    assert [int((await watcher.receive(Publish)).payload) for _ in range(count)] == list(range(count))


# Refused


@pytest.mark.parametrize("qos", [1, 2])
async def test_refused_message_is_answered_with_its_reason(
    narrow: RunningServer, peers: Peers, qos: int
) -> None:
    peer = await peers.connect(port=narrow.port)
    assert await peer.publish("a/b/c/d/e", b"", qos) == ReasonCode.TOPIC_NAME_INVALID
    assert await peer.publish("x" * 51, b"", qos) == ReasonCode.TOPIC_NAME_INVALID
    assert await peer.publish("$SYS/mine", b"", qos) == ReasonCode.NOT_AUTHORIZED
    await peer.send(Publish("$SYS/mine", b""), Publish("a/b/c/d/e", b""))
    assert await peer.fence() == []  # at QoS 0 there is no word for it


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_311_message_that_may_not_be_published_is_acknowledged_and_dropped(
    narrow: RunningServer, peers: Peers, qos: int
) -> None:
    peer = await peers.connect("", Version.V311, port=narrow.port)
    await peer.subscribe("$SYS/mine")
    for topic in ("$SYS/mine", "a/b/c/d/e"):
        assert await peer.publish(topic, b"x", qos) == 0  # MQTT-3.3.5-2
    assert await peer.fence() == []


@both_versions
async def test_topic_too_many_is_told_or_ends_the_connection(
    start_server: StartServer, peers: Peers, name: str, version: Version
) -> None:
    port = start_server({"topic": {"max_topics": 3}, "sys_interval_s": 0}).port
    watcher = await peers.connect(port=port)
    peer = await peers.connect("", version, port=port)
    await watcher.subscribe("#")
    for number in range(3):
        await peer.publish(f"{name}/{number}", b"in")
    await peer.send(Publish(f"{name}/more", b"out", 0), Publish(f"{name}/more", b"out", 1, packet_id=9))
    if version is Version.V5:
        assert await peer.receive(PubAck) == PubAck(9, ReasonCode.QUOTA_EXCEEDED)
        assert await peer.publish(f"{name}/0", b"in") == 0
    else:
        assert await peer.last_words() == []  # without an acknowledgement the client keeps it
    assert set(payloads(await watcher.fence())) == {b"in"}


async def test_refusals_at_qos_2_free_their_packet_id(narrow: RunningServer, peers: Peers) -> None:
    peer = await peers.connect(port=narrow.port)
    for _ in range(20):  # four times the window
        await peer.send(Publish("$SYS/mine", b"", 2, packet_id=1))
        assert await peer.receive(PubRec) == PubRec(1, ReasonCode.NOT_AUTHORIZED)
    await peer.send(Publish("free", b"", 2, packet_id=1))
    assert (await peer.receive(PubRec)).reason < 0x80  # MQTT-4.3.3-9


# The window


async def test_full_window_of_qos_2_is_fine_and_one_more_is_not(narrow: RunningServer, peers: Peers) -> None:
    peer = await peers.connect(port=narrow.port)
    await peer.send(*(Publish("t", b"", 2, packet_id=number) for number in range(1, 6)))
    assert [(await peer.receive(PubRec)).packet_id for _ in range(5)] == [1, 2, 3, 4, 5]
    await peer.send(PubRel(2), Publish("t", b"", 2, packet_id=6))
    assert await peer.receive(PubComp) == PubComp(2)
    assert (await peer.receive(PubRec)).packet_id == 6
    await peer.send(Publish("t", b"", 1, packet_id=7))
    assert await peer.last_words() == [Disconnect(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)]  # MQTT-3.3.4-7


async def test_full_window_in_one_chunk_is_fine(peers: Peers, name: str) -> None:
    peer = await peers.connect()
    for qos, kind in ((1, PubAck), (2, PubRec)):
        messages = [Publish(name, b"x", qos, packet_id=number) for number in range(1, 1001)]
        await peer.send_bytes(b"".join(encode_packet(message, Version.V5) for message in messages))
        assert [(await peer.receive(kind)).packet_id for _ in messages] == list(range(1, 1001))


async def test_full_window_does_not_hold_other_packets_back(narrow: RunningServer, peers: Peers) -> None:
    peer = await peers.connect(port=narrow.port)
    await peer.send(*(Publish("t", b"", 2, packet_id=number) for number in range(1, 6)))
    assert [(await peer.receive(PubRec)).packet_id for _ in range(5)] == [1, 2, 3, 4, 5]
    await peer.subscribe("u", qos=1)
    await peer.send(Publish("u", b"nought"))
    assert payloads(await peer.fence()) == [b"nought"]  # QoS 0 needs no place in it
    await peer.unsubscribe("u")


async def test_311_has_no_window(narrow: RunningServer, peers: Peers) -> None:
    peer = await peers.connect("", Version.V311, port=narrow.port)
    await peer.send(*(Publish("t", b"", 2, packet_id=number) for number in range(1, 51)))
    assert [(await peer.receive(PubRec)).packet_id for _ in range(50)] == list(range(1, 51))


# Size


@both_versions
@every_qos
async def test_packet_may_be_as_large_as_the_limit(
    peers: Peers, name: str, version: Version, qos: int
) -> None:
    peer, watcher = await peers.connect("", version), await peers.connect("", version)
    await watcher.subscribe(name, qos=qos)
    overhead = (
        len(encode_packet(Publish(name, bytes(LARGEST_PAYLOAD), qos, packet_id=1), version)) - LARGEST_PAYLOAD
    )
    payload = bytes(range(256)) * (LIMIT_BYTES // 256)
    payload = payload[: LIMIT_BYTES - overhead]
    await peer.publish(name, payload, qos)
    assert (await watcher.receive(Publish)).payload == payload


@both_versions
async def test_larger_packet_is_refused_from_its_length(
    server: RunningServer, peers: Peers, name: str, version: Version
) -> None:
    peer, other = await peers.connect(name, version), await peers.connect()
    before = server.memory_bytes
    await peer.send_bytes(b"\x30\xff\xff\xff\x7f" + bytes(1000))
    assert await peer.last_words() == endings(version, ReasonCode.PACKET_TOO_LARGE)
    assert server.memory_bytes - before < 5 * MIB
    assert await other.fence() == []


async def test_packet_one_byte_above_the_limit_is_refused(narrow: RunningServer, peers: Peers) -> None:
    limit = 1000 + 65 * 1024
    for extra in (0, 1):
        peer = await peers.connect(port=narrow.port)
        assert peer.connack.properties.maximum_packet_size == limit
        overhead = len(encode_packet(Publish("t", bytes(limit - 100)), Version.V5)) - (limit - 100)
        await peer.send(Publish("t", bytes(limit - overhead + extra)))
        if extra:
            assert await peer.last_words() == [Disconnect(ReasonCode.PACKET_TOO_LARGE)]
        else:
            assert await peer.fence() == []


@both_versions
async def test_other_packets_have_a_smaller_limit(peers: Peers, name: str, version: Version) -> None:
    peer = await peers.connect("", version)
    filters = [Request(f"{name}/{number:04}" + "x" * 60) for number in range(900)]
    assert await peer.subscribe(*filters[:600]) == (0,) * 600
    header = (
        b"\x82" + b"\x81\x88\x04"
    )  # 66561 bytes announced, one more than the limit allows with the header
    await peer.send_bytes(header)
    assert await peer.last_words() == endings(version, ReasonCode.PACKET_TOO_LARGE)


async def test_properties_of_a_message_have_the_same_smaller_limit(peers: Peers, name: str) -> None:
    peer, watcher = await peers.connect(), await peers.connect()
    await watcher.subscribe(name)
    many = PacketProperties(user=(("k", "v" * 1000),) * 60)
    await peer.publish(name, b"fits", properties=many)
    assert (await watcher.receive(Publish)).properties == many
    too_many = PacketProperties(user=(("k", "v" * 1000),) * 70)
    await peer.send(Publish(name, bytes(MIB), properties=too_many))
    assert await peer.last_words() == [Disconnect(ReasonCode.PACKET_TOO_LARGE)]


# Carried whole

EVERYTHING = PacketProperties(
    payload_format=1,
    content_type="text/plain; charset=utf-8",
    response_topic="reply/to/me",
    correlation_data=b"\x00\xff\x01",
    user=(("b", "1"), ("a", "2"), ("b", "3"), ("", "")),
)


@every_qos
async def test_all_properties_are_carried_through_unchanged(peers: Peers, name: str, qos: int) -> None:
    peer, watcher, late = await peers.connect(), await peers.connect(), await peers.connect()
    await watcher.subscribe(name, qos=2)
    await peer.publish(name, "grüße".encode(), qos, retain=True, properties=EVERYTHING)
    live = await watcher.receive(Publish)
    assert (live.payload, live.properties) == ("grüße".encode(), EVERYTHING)  # MQTT-3.3.2-4, -15 to -18, -20
    await late.subscribe(name, qos=2)
    kept = await late.receive(Publish)
    assert (kept.payload, kept.properties, kept.retain) == ("grüße".encode(), EVERYTHING, True)


async def test_311_subscriber_gets_the_payload_without_properties(peers: Peers, name: str) -> None:
    peer, watcher = await peers.connect(), await peers.connect("", Version.V311)
    await watcher.subscribe(name, qos=1)
    await peer.publish(name, b"bare", properties=EVERYTHING)
    assert await watcher.receive(Publish) == Publish(name, b"bare", 1, packet_id=1)


async def test_311_message_reaches_mqtt_5_without_properties(peers: Peers, name: str) -> None:
    peer, watcher = await peers.connect("", Version.V311), await peers.connect()
    await watcher.subscribe(name, qos=2)
    for qos in range(3):
        await peer.publish(name, b"bare", qos)
        assert await watcher.receive(Publish) == Publish(name, b"bare", qos, packet_id=qos)


async def test_subscription_identifier_from_a_client_is_a_protocol_error(peers: Peers, name: str) -> None:
    peer = await peers.connect()
    await peer.send(Publish(name, b"", properties=PacketProperties(subscription_ids=(1,))))
    assert await peer.last_words() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]  # MQTT-3.3.4-6


# Topic aliases


def aliased(topic: str, payload: bytes, alias: int) -> Publish:
    return Publish(topic, payload, properties=PacketProperties(topic_alias=alias))


async def test_alias_stands_for_the_topic_it_was_last_given(peers: Peers, name: str) -> None:
    peer, watcher = await peers.connect(), await peers.connect()
    await watcher.subscribe(f"{name}/#")
    one, two = f"{name}/1", f"{name}/2"
    await peer.send(aliased(one, b"a", 1), aliased("", b"b", 1), aliased(two, b"c", 10), aliased("", b"d", 1))
    await peer.send(aliased(two, b"e", 1), aliased("", b"f", 1), aliased("", b"g", 10))
    await peer.fence()
    got = [message for message in await watcher.fence() if isinstance(message, Publish)]
    assert [(message.topic, message.payload) for message in got] == [
        (one, b"a"), (one, b"b"), (two, b"c"), (one, b"d"), (two, b"e"), (two, b"f"), (two, b"g")
    ]  # fmt: skip
    assert all(message.properties.topic_alias is None for message in got)  # MQTT-3.1.2-27


async def test_alias_ends_with_its_connection(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, expiry=100)
    await peer.send(aliased(name, b"", 1), aliased("", b"", 1))
    await peer.leave()
    peer = await peers.connect(name, expiry=100, clean=False)
    await peer.send(aliased("", b"", 1))
    assert await peer.last_words() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]  # MQTT-3.3.2-7


@pytest.mark.parametrize("alias", [0, 3, 65_535])
async def test_alias_out_of_range_is_refused(narrow: RunningServer, peers: Peers, alias: int) -> None:
    peer = await peers.connect(port=narrow.port)
    assert peer.connack.properties.topic_alias_maximum == 2
    await peer.send_bytes(b"\x30\x07\x00\x01t\x03\x23" + alias.to_bytes(2, "big"))
    assert await peer.last_words() == [Disconnect(ReasonCode.TOPIC_ALIAS_INVALID)]  # MQTT-3.3.2-8, -9


# Expiry


async def test_expiry_is_reduced_by_the_time_a_message_waited(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, expiry=100)
    await peer.subscribe(name, qos=1)
    await peer.leave()
    publisher = await peers.connect()
    for lifetime in (1, 100):
        await publisher.publish(name, b"%d" % lifetime, properties=PacketProperties(message_expiry=lifetime))
    await publisher.publish(f"{name}/kept", b"", retain=True, properties=PacketProperties(message_expiry=50))
    await asyncio.sleep(1.2)
    peer = await peers.connect(name, expiry=100, clean=False)
    message = await peer.receive(Publish)
    assert message.payload == b"100"  # the other has expired, MQTT-3.3.2-5
    assert 90 < (message.properties.message_expiry or 0) < 100  # MQTT-3.3.2-6
    await publisher.subscribe(f"{name}/kept")
    assert await publisher.fence() == []  # an empty payload is not kept


async def test_retained_message_expires(peers: Peers, name: str) -> None:
    publisher = await peers.connect()
    for lifetime in (1, 50):
        properties = PacketProperties(message_expiry=lifetime)
        await publisher.publish(f"{name}/{lifetime}", b"x", retain=True, properties=properties)
    await asyncio.sleep(1.2)
    await publisher.subscribe(f"{name}/#")
    message = await publisher.receive(Publish)
    assert message.topic == f"{name}/50"
    assert 40 < (message.properties.message_expiry or 0) < 50
    assert await publisher.fence() == []


async def test_who_is_there_gets_a_message_that_expires_at_once(peers: Peers, name: str) -> None:
    peer, away = await peers.connect(), await peers.connect(name, expiry=100)
    await away.subscribe(name, qos=1)
    await away.leave()
    await peer.subscribe(name, qos=1)
    await peer.send(Publish(name, b"now", 1, packet_id=1, properties=PacketProperties(message_expiry=0)))
    got = [await peer.take() for _ in range(2)]
    assert [packet.payload for packet in got if isinstance(packet, Publish)] == [b"now"]
    away = await peers.connect(name, expiry=100, clean=False)
    assert await away.fence() == []


# Order of an acknowledgement and the message itself


@pytest.mark.skipif(is_on_disk(), reason="an acknowledgement waits for its commit there")
@both_versions
@pytest.mark.parametrize("qos", [1, 2])
async def test_acknowledgement_comes_before_the_message_to_its_own_publisher(
    peers: Peers, name: str, version: Version, qos: int
) -> None:
    peer = await peers.connect(name, version)
    await peer.subscribe(name, qos=qos)
    for number in range(1, 6):
        await peer.send(Publish(name, b"%d" % number, qos, packet_id=number))
        assert await peer.take() == (PubAck if qos == 1 else PubRec)(number)
        message = await peer.receive(Publish)
        assert message.payload == b"%d" % number
        if qos == 2:
            await peer.send(PubRel(number), PubRec(message.packet_id))
            assert {type(await peer.take()) for _ in range(2)} == {PubComp, PubRel}
            await peer.send(PubComp(message.packet_id))
        else:
            await peer.send(PubAck(message.packet_id))
