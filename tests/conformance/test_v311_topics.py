"""MQTT 3.1.1, section 4.7: what is a topic, what is a filter, and what matches."""

import pytest

from penstock.wire.mqtt import Packet, Publish, Request, SubAck, Subscribe
from tests.conformance.statements import v311
from tests.conformance.v311_bytes import ending, frame, text
from tests.doors.mqtt.peers import Peers
from tests.support.servers import RunningServer, StartServer

LONGEST_BYTES = 65_535


@pytest.fixture(scope="module")
def roomy(start_server: StartServer) -> RunningServer:
    """A server that takes the longest topics there are, and owes absent sessions one message."""
    return start_server(
        {
            "topic": {"max_bytes": LONGEST_BYTES, "max_levels": LONGEST_BYTES},
            "sessions": {"owed_messages": 1},
            "reaper_interval_ms": 50,
        }
    )


def topics_of(packets: list[Packet]) -> list[str]:
    return [packet.topic for packet in packets if isinstance(packet, Publish)]


# Wildcards


@pytest.mark.parametrize("topic", ["#", "+", "a/#", "a/+/b", "a+", "#a"])
@v311("4.7.1-1", "3.3.2-2")
async def test_v311_mqtt_4_7_1_1_wildcard_in_a_topic_closes_the_connection(
    peers_311: Peers, topic: str
) -> None:
    assert await ending(peers_311, frame(0x30, text(topic))) == []


@pytest.mark.parametrize(
    ("filter", "wanted"),
    [
        ("{}/a", ["{}/a"]),
        ("{}/+", ["{}/", "{}/a"]),
        ("{}/#", ["{}", "{}/", "{}/a", "{}/a/", "{}/a/b", "{}/a/b/c"]),
        ("{}/a/#", ["{}/a", "{}/a/", "{}/a/b", "{}/a/b/c"]),
        ("{}/+/b", ["{}/a/b"]),
        ("{}/+/+", ["{}/a/", "{}/a/b"]),
        ("{}/+/#", ["{}/", "{}/a", "{}/a/", "{}/a/b", "{}/a/b/c"]),
        ("+/{}", ["/{}"]),
        ("/+", ["/{}"]),
    ],
)
@v311("3.3.2-3", "3.3.2-2", "4.7.1-1")
async def test_v311_mqtt_3_3_2_3_delivered_topics_are_those_that_the_filter_matches(
    peers_311: Peers, name: str, filter: str, wanted: list[str]
) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await peer.subscribe(filter.format(name))
    for topic in ("{}", "/{}", "{}/", "{}/a", "{}/a/", "{}/a/b", "{}/a/b/c"):
        await publisher.publish(topic.format(name), b"x")
    assert topics_of(await peer.fence()) == [topic.format(name) for topic in wanted]


@pytest.mark.parametrize("filter", ["a#", "a/b#", "#/a", "a/#/b", "##", "#/", "#/#"])
@v311("4.7.1-2")
async def test_v311_mqtt_4_7_1_2_hash_elsewhere_than_alone_at_the_end_is_refused(
    peers_311: Peers, filter: str
) -> None:
    peer = await peers_311.connect()
    assert await peer.subscribe("a/b", filter) == (0, 0x80)


@pytest.mark.parametrize("filter", ["a+", "+a", "a/b+", "a/+b/c", "++", "a/+#"])
@v311("4.7.1-3")
async def test_v311_mqtt_4_7_1_3_plus_beside_other_characters_is_refused(
    peers_311: Peers, filter: str
) -> None:
    peer = await peers_311.connect()
    assert await peer.subscribe("a/b", filter) == (0, 0x80)


@v311("4.7.2-1")
async def test_v311_mqtt_4_7_2_1_wildcard_in_front_does_not_match_a_dollar(
    roomy: RunningServer, peers_311: Peers, name: str
) -> None:
    away = await peers_311.connect(name, clean=False, port=roomy.port)
    await away.subscribe(name, qos=1)
    await away.leave()
    wild, exact, publisher = [await peers_311.connect(port=roomy.port) for _ in range(3)]
    await wild.subscribe("#", "+/#", "+/drops", "+/+")
    await exact.subscribe("$penstock/#")
    news: list[Packet] = []
    while not news:  # each message to the absent session drops one, of which the server tells
        await publisher.publish(name, b"x")
        news = await exact.fence()
    assert set(topics_of(news)) == {"$penstock/drops"}
    assert set(topics_of(await wild.fence())) == {name}


# Characters


@v311("4.7.3-1")
async def test_v311_mqtt_4_7_3_1_empty_topic_closes_the_connection(peers_311: Peers) -> None:
    for first, packet_id in ((0x30, b""), (0x32, b"\x00\x01"), (0x34, b"\x00\x01")):
        assert await ending(peers_311, frame(first, text("") + packet_id + b"x")) == []


@v311("4.7.3-1")
async def test_v311_mqtt_4_7_3_1_empty_filter_is_refused(peers_311: Peers) -> None:
    peer = await peers_311.connect()
    assert await peer.subscribe("", "a") == (0x80, 0)


@pytest.mark.parametrize("topic", ["/", "//", " ", "a b", "é"])
@v311("4.7.3-1")
async def test_v311_mqtt_4_7_3_1_one_character_is_enough(peers_311: Peers, topic: str) -> None:
    peer = await peers_311.connect()
    await peer.subscribe(topic)
    await peer.publish(topic, b"x", 0)
    assert topics_of(await peer.fence()) == [topic]


@pytest.mark.parametrize("character", ["x", "é", "/"])
@v311("4.7.3-3")
async def test_v311_mqtt_4_7_3_3_longest_topic_and_filter_are_carried_whole(
    roomy: RunningServer, peers_311: Peers, character: str
) -> None:
    topic = (character * LONGEST_BYTES).encode()[: LONGEST_BYTES - 1].decode() + "z"
    assert len(topic.encode()) == LONGEST_BYTES
    peer = await peers_311.connect(port=roomy.port)
    await peer.send(Subscribe(1, (Request(topic, 1),)))
    assert await peer.receive(SubAck) == SubAck(1, (1,))
    await peer.publish(topic, b"x", 0)
    assert topics_of(await peer.fence()) == [topic]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("é", "e\u0301"),  # the same to the eye
        ("Å", "\u212b"),
        ("a", "A"),
        ("ß", "ss"),
        ("a", " a"),
        ("a", "a/"),
        ("a", "/a"),
        ("a//b", "a/b"),
        ("a/./b", "a/b"),
        ("a%2Fb", "a/b"),
        ("\ufb01", "fi"),
    ],
)
@v311("4.7.3-4")
async def test_v311_mqtt_4_7_3_4_names_are_compared_as_they_are(
    peers_311: Peers, name: str, one: str, other: str
) -> None:
    first, second, publisher = [await peers_311.connect() for _ in range(3)]
    await first.subscribe(f"{name}/{one}")
    await second.subscribe(f"{name}/{other}")
    for topic in (one, other):
        await publisher.publish(f"{name}/{topic}", b"x")
    assert topics_of(await first.fence()) == [f"{name}/{one}"]
    assert topics_of(await second.fence()) == [f"{name}/{other}"]
