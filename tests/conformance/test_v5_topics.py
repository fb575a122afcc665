"""MQTT 5.0, section 4.7: topic names and topic filters."""

import pytest

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Packet,
    PacketProperties,
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
from tests.doors.mqtt.peers import Peers, payloads
from tests.support.servers import RunningServer, StartServer

LONGEST_BYTES = 65_535


@pytest.fixture(scope="module")
def generous(start_server: StartServer) -> RunningServer:
    """A server that takes topics as long as the protocol allows, and tells soon what it dropped."""
    topic = {"max_bytes": LONGEST_BYTES, "max_levels": LONGEST_BYTES}
    return start_server({"topic": topic, "mqtt": {"max_control_bytes": 256 * 1024}, "reaper_interval_ms": 50})


def text(value: bytes) -> bytes:
    """A string on the wire, whatever it holds."""
    return len(value).to_bytes(2, "big") + value


# Wildcards


@pytest.mark.parametrize("level", ["+", "#", "+/b", "#/b", "a+b", "a#"])
@v5("4.7.0-1")
async def test_v5_mqtt_4_7_0_1_topic_name_with_a_wildcard_is_refused_and_not_passed_on(
    peers: Peers, name: str, level: str
) -> None:
    watcher, peer = await peers.connect(), await peers.connect()
    await watcher.subscribe(f"{name}/#")
    await peer.send(Publish(f"{name}/{level}", b"x"))
    assert await ending_of(peer) == ReasonCode.TOPIC_NAME_INVALID
    assert await watcher.fence() == []


@v5("4.7.0-1")
async def test_v5_mqtt_4_7_0_1_will_topic_with_a_wildcard_is_refused(peers: Peers) -> None:
    (word,) = await peers.refused(Connect("", Version.V5, will=Will("a/+", b"")))
    assert isinstance(word, ConnAck)
    assert word.reason == ReasonCode.TOPIC_NAME_INVALID


@pytest.mark.parametrize("filter", ["a/b#", "a#", "#/a", "a/#/b", "##", "a/##", "+#", "/a/#/"])
@v5("4.7.1-1")
async def test_v5_mqtt_4_7_1_1_number_sign_elsewhere_than_alone_at_the_end_is_refused(
    peers: Peers, filter: str
) -> None:
    peer = await peers.connect()
    assert await peer.subscribe(filter) == (ReasonCode.TOPIC_FILTER_INVALID,)


@pytest.mark.parametrize("filter", ["a+", "+a", "a/b+/c", "++", "a/+b", "a/++/b", "+/+a/#"])
@v5("4.7.1-2")
async def test_v5_mqtt_4_7_1_2_plus_sign_that_does_not_fill_its_level_is_refused(
    peers: Peers, filter: str
) -> None:
    peer = await peers.connect()
    assert await peer.subscribe(filter) == (ReasonCode.TOPIC_FILTER_INVALID,)


@pytest.mark.parametrize(
    ("filter", "wanted"),
    [
        ("{}/#", {"{}", "{}/", "{}/a", "{}/a/b", "{}//b"}),
        ("{}/+", {"{}/", "{}/a"}),
        ("{}/+/b", {"{}/a/b", "{}//b"}),
        ("{}/+/#", {"{}/", "{}/a", "{}/a/b", "{}//b"}),
        ("+/a/+", {"{}/a/b"}),
        ("{}/a/#", {"{}/a", "{}/a/b"}),
        ("{}", {"{}"}),
        ("/{}", {"/{}"}),
        ("/+", {"/{}"}),
        ("+/+/b", {"{}/a/b", "{}//b"}),
    ],
)
@v5("4.7.1-1", "4.7.1-2")
async def test_v5_mqtt_4_7_1_1_wildcards_stand_for_whole_levels(
    peers: Peers, name: str, filter: str, wanted: set[str]
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    assert await peer.subscribe(filter.format(name)) == (0,)
    for topic in ("{}", "{}/", "{}/a", "{}/a/b", "{}//b", "/{}"):
        await publisher.send(Publish(topic.format(name)))
    await publisher.fence()
    got = {packet.topic for packet in await peer.fence() if isinstance(packet, Publish)}
    mine = {topic for topic in got if name in topic}
    assert mine == {topic.format(name) for topic in wanted}


@v5("4.7.2-1")
async def test_v5_mqtt_4_7_2_1_leading_wildcards_do_not_reach_topics_that_begin_with_a_dollar(
    generous: RunningServer, peers: Peers
) -> None:
    port = generous.port
    broad, exact = [await peers.connect(port=port) for _ in range(2)]
    await broad.subscribe("#", "+/#", "+/drops", "+/broker/#")
    await exact.subscribe("$penstock/#")
    # What is too large for a subscriber is told on a topic of the server's own, if someone listens.
    small = await peers.connect(port=port, properties=PacketProperties(maximum_packet_size=64))
    await small.subscribe("large")
    publisher = await peers.connect(port=port)
    own: list[Packet] = []
    while not own:
        await publisher.publish("large", bytes(100))
        own = await exact.fence()
    assert {packet.topic for packet in own if isinstance(packet, Publish)} == {"$penstock/drops"}
    got = await broad.fence()
    assert {packet.topic for packet in got if isinstance(packet, Publish)} == {"large"}


# What is in them


@v5("4.7.3-1")
async def test_v5_mqtt_4_7_3_1_empty_topic_name_is_a_protocol_error(peers: Peers) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, raw(0x30, b"\x00\x00\x00x")) == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize("filter", ["", "$share/group/"])
@v5("4.7.3-1")
async def test_v5_mqtt_4_7_3_1_empty_filter_is_refused(peers: Peers, filter: str) -> None:
    peer = await peers.connect()
    assert await peer.subscribe(filter) == (ReasonCode.TOPIC_FILTER_INVALID,)


@pytest.mark.parametrize("topic", ["/", "//", " ", "{}/", "/{}", "{}//"])
@v5("4.7.3-1", "4.7.3-4")
async def test_v5_mqtt_4_7_3_1_one_character_is_enough_and_empty_levels_count(
    peers: Peers, name: str, topic: str
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    topic = topic.format(name)
    await peer.subscribe(topic)
    for each in (topic, topic + "/", "/" + topic, topic.strip("/ ") or "x"):
        await publisher.send(Publish(each, name.encode()))
    await publisher.fence()
    mine = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert {packet.topic for packet in mine if packet.payload == name.encode()} == {topic}


@pytest.mark.parametrize(
    "data",
    [
        raw(0x30, text(b"a\x00b") + b"\x00"),
        raw(0x82, b"\x00\x01\x00" + text(b"a\x00b") + b"\x00"),
        raw(0xA2, b"\x00\x01\x00" + text(b"\x00")),
    ],
    ids=["publish", "subscribe", "unsubscribe"],
)
@v5("4.7.3-2")
async def test_v5_mqtt_4_7_3_2_null_character_is_malformed(peers: Peers, data: bytes) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, data) == ReasonCode.MALFORMED_PACKET


@v5("4.7.3-3")
async def test_v5_mqtt_4_7_3_3_longest_name_and_filter_are_carried_whole(
    generous: RunningServer, peers: Peers
) -> None:
    peer = await peers.connect(port=generous.port)
    topic = "ü/" * (LONGEST_BYTES // 3)
    assert len(topic.encode()) == LONGEST_BYTES
    assert await peer.subscribe(topic) == (0,)
    await peer.send(Publish(topic, b"x"))
    assert await peer.fence() == [Publish(topic, b"x")]


@v5("4.7.3-3")
async def test_v5_mqtt_4_7_3_3_longer_ones_than_the_server_takes_are_refused(peers: Peers) -> None:
    peer = await peers.connect()
    assert await peer.subscribe("x" * 4097, "x" * 4096) == (ReasonCode.TOPIC_FILTER_INVALID, 0)
    assert await peer.publish("x" * 4097) == ReasonCode.TOPIC_NAME_INVALID
    assert await peer.publish("x" * 4096, b"fits", 0) == 0
    assert payloads(await peer.fence()) == [b"fits"]


# Matching


@pytest.mark.parametrize(
    ("filter", "topic"),
    [
        ("caf\u00e9", "cafe\u0301"),
        ("\u212b", "\u00e5"),
        ("A", "a"),
        ("\ufeffa", "a"),
        ("a b", "a\u00a0b"),
        ("a", "a "),
        ("\uff0fa", "/a"),
        ("\u00df", "ss"),
    ],
    ids=ascii,
)
@v5("4.7.3-4")
async def test_v5_mqtt_4_7_3_4_topics_are_compared_character_by_character(
    peers: Peers, name: str, filter: str, topic: str
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(Request(f"{name}/{filter}"))
    await publisher.send(Publish(f"{name}/{topic}", b"another"), Publish(f"{name}/{filter}", b"the same"))
    await publisher.fence()
    assert await peer.fence() == [Publish(f"{name}/{filter}", b"the same")]


@v5("4.7.3-4")
async def test_v5_mqtt_4_7_3_4_subscription_that_differs_in_form_is_another_one(
    peers: Peers, name: str
) -> None:
    peer = await peers.connect()
    data = encode_packet(Subscribe(1, (Request(f"{name}/\u00e9"), Request(f"{name}/e\u0301"))), Version.V5)
    await peer.send_bytes(data)
    await peer.take()
    assert await peer.unsubscribe(f"{name}/\u00e9", f"{name}/\u00e9", f"{name}/e\u0301") == (0x00, 0x11, 0x00)
