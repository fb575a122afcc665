"""What a subscription brings: live and retained messages, each once, with the options that were asked for."""

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
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
)
from penstock.wire.mqtt.packets import Request
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, both_versions, every_qos, payloads
from tests.support.servers import RunningServer, StartServer


@pytest.fixture(scope="module")
def narrow(start_server: StartServer) -> RunningServer:
    """A server with small limits."""
    return start_server({"sessions": {"max_subscriptions": 3}, "topic": {"max_bytes": 50, "max_levels": 4}})


def identified(identifier: int) -> PacketProperties:
    return PacketProperties(subscription_ids=(identifier,))


def messages(packets: list[Packet]) -> list[tuple[str, bytes, int, bool]]:
    """Topic, payload, QoS and RETAIN of messages."""
    return [(p.topic, p.payload, p.qos, p.retain) for p in packets if isinstance(p, Publish)]


# The answer


@both_versions
async def test_each_filter_gets_its_answer_in_order(
    narrow: RunningServer, peers: Peers, version: Version
) -> None:
    peer = await peers.connect("", version, port=narrow.port)
    asked = [
        ("a/#", 1),
        ("a#", 0),
        ("b/+", 2),
        ("x/y/z/1/2", 0),
        ("c", 0),
        ("d", 0),
        ("$share/g/", 0),
        ("b/+", 0),
    ]
    answer = await peer.subscribe(*(Request(filter, qos) for filter, qos in asked))
    if version is Version.V5:
        invalid, quota = ReasonCode.TOPIC_FILTER_INVALID, ReasonCode.QUOTA_EXCEEDED
        assert answer == (1, invalid, 2, invalid, 0, quota, invalid, 0)
    else:
        assert answer == (1, 0x80, 2, 0x80, 0, 0x80, 0x80, 0)  # MQTT-3.9.3-2 of 3.1.1


@both_versions
async def test_unsubscribe_answers_for_each_filter_by_its_exact_text(
    peers: Peers, name: str, version: Version
) -> None:
    peer = await peers.connect("", version)
    await peer.subscribe(f"{name}/+", f"{name}/a")
    existed, not_existed = ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED
    answer = await peer.unsubscribe(f"{name}/#", f"{name}/+", f"{name}/b", f"{name}/+")
    wanted = (not_existed, existed, not_existed, not_existed) if version is Version.V5 else ()
    assert answer == wanted  # MQTT-3.10.4-1, MQTT-3.11.3-1
    await peer.publish(f"{name}/b", b"gone")
    assert await peer.fence() == []
    await peer.send(Publish(f"{name}/a", b"still there"))
    assert payloads(await peer.fence()) == [b"still there"]


async def test_answer_too_large_for_the_client_ends_its_connection(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, properties=PacketProperties(maximum_packet_size=64))
    assert len(await peer.subscribe(*(f"{name}/{number}" for number in range(50)))) == 50
    await peer.send(Subscribe(9, tuple(Request(f"{name}/{number}") for number in range(70))))
    assert await peer.last_words() == [Disconnect(ReasonCode.PACKET_TOO_LARGE)]  # MQTT-3.1.2-24


@both_versions
async def test_packet_ids_of_requests_are_repeated(peers: Peers, name: str, version: Version) -> None:
    peer = await peers.connect("", version)
    await peer.send(Subscribe(65_535, (Request(name),)), Unsubscribe(1, (name,)))
    assert await peer.receive(SubAck) == SubAck(65_535, (0,))
    assert await peer.receive(UnsubAck) == UnsubAck(1, (0,) if version is Version.V5 else ())


# What comes


@both_versions
@every_qos
async def test_quality_is_the_lower_of_published_and_granted(
    peers: Peers, name: str, version: Version, qos: int
) -> None:
    peer, publisher = await peers.connect("", version), await peers.connect()
    assert await peer.subscribe(name, qos=qos) == (qos,)
    for published in range(3):
        await publisher.publish(name, b"x", published)
        assert (await peer.receive(Publish)).qos == min(published, qos)  # MQTT-3.8.4-8


@both_versions
@pytest.mark.parametrize(
    ("filter", "wanted"),
    [
        ("{}/a", {"{}/a"}),
        ("{}/+", {"{}/a", "{}/"}),
        ("{}/#", {"{}", "{}/a", "{}/a/b", "{}/a/b/c", "{}/"}),
        ("{}/+/b", {"{}/a/b"}),
        ("{}/+/+/+", {"{}/a/b/c"}),
        ("{}/+/#", {"{}/a", "{}/a/b", "{}/a/b/c", "{}/"}),
        ("{}", {"{}"}),
        ("+/a/b/c", {"{}/a/b/c"}),
        ("{}/A", set()),
    ],
)
async def test_wildcards_match_live_and_retained_alike(
    peers: Peers, name: str, version: Version, filter: str, wanted: set[str]
) -> None:
    publisher, live, late = [await peers.connect("", version) for _ in range(3)]
    await live.subscribe(filter.format(name))
    for topic in ("{}", "{}/", "{}/a", "{}/a/b", "{}/a/b/c"):
        await publisher.publish(topic.format(name), b"x", retain=True)
    await late.subscribe(filter.format(name))
    topics = {topic.format(name) for topic in wanted}
    for peer in (live, late):
        found = messages(await peer.fence() + await peer.fence())
        mine = [topic for topic, *_ in found if topic.startswith(name)]
        assert sorted(mine) == sorted(topics)


@both_versions
async def test_leading_wildcards_do_not_reach_the_servers_own_topics(
    start_server: StartServer, peers: Peers, version: Version
) -> None:
    port = start_server({"outbox": {"messages": 1}, "reaper_interval_ms": 50}).port
    peer = await peers.connect("", version, port=port)
    await peer.subscribe("#", "+/drops", "+/#")
    watcher = await peers.connect(port=port)
    await watcher.subscribe("$penstock/#")
    publisher = await peers.connect(port=port)
    small = PacketProperties(maximum_packet_size=64)
    picky = await peers.connect(port=port, properties=small)
    await picky.subscribe("big")
    drops: list[Packet] = []
    while not drops:  # the ledger tells whoever asks for it, and only them
        await publisher.publish("big", bytes(100))
        drops = await watcher.fence()
    assert {packet.topic for packet in drops if isinstance(packet, Publish)} == {"$penstock/drops"}
    assert {topic for topic, *_ in messages(await peer.fence())} == {"big"}  # MQTT-4.7.2-1


@both_versions
async def test_overlapping_filters_bring_one_copy_at_the_highest_qos(
    peers: Peers, name: str, version: Version
) -> None:
    peer, publisher = await peers.connect("", version), await peers.connect()
    await peer.subscribe(Request(f"{name}/#", 0), Request(f"{name}/+", 2), Request(f"{name}/a", 1))
    await publisher.publish(f"{name}/a", b"x", 2)
    got = await peer.fence()
    assert messages(got) == [(f"{name}/a", b"x", 2, False)]  # MQTT-3.3.4-2


async def test_one_copy_names_the_identifiers_of_all_its_filters(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(f"{name}/#", qos=1, properties=identified(1))
    await peer.subscribe(f"{name}/+", properties=identified(268_435_455))
    await peer.subscribe(f"{name}/a", qos=2)
    await publisher.publish(f"{name}/a", b"x", 2)
    message = await peer.receive(Publish)
    assert sorted(message.properties.subscription_ids) == [1, 268_435_455]  # MQTT-3.3.4-4
    await publisher.publish(f"{name}/b/c", b"y", 2)
    message = await peer.receive(Publish)
    assert (message.qos, message.properties.subscription_ids) == (1, (1,))


@every_qos
async def test_identifier_comes_with_live_and_retained_messages(peers: Peers, name: str, qos: int) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await publisher.publish(name, b"kept", qos, retain=True)
    await peer.subscribe(name, qos=qos, properties=identified(5))
    await publisher.publish(name, b"live", qos)
    got = [await peer.receive(Publish) for _ in range(2)]
    assert payloads(got) == [b"kept", b"live"]
    assert [message.properties.subscription_ids for message in got] == [(5,), (5,)]


async def test_subscribing_again_replaces_options_and_identifier(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(name, qos=2, properties=identified(5))
    await peer.subscribe(name, qos=1)
    await publisher.publish(name, b"x", 2)
    got = await peer.fence()
    assert [(p.qos, p.properties.subscription_ids) for p in got if isinstance(p, Publish)] == [(1, ())]


@both_versions
async def test_replacing_a_subscription_loses_no_live_message(
    peers: Peers, name: str, version: Version
) -> None:
    peer, publisher = await peers.connect("", version), await peers.connect()
    await peer.subscribe(name, qos=1)
    for number in range(50):
        await publisher.send(Publish(name, b"%d" % number))
        await peer.send(Subscribe(7, (Request(name, number % 2),)))
    await publisher.fence()
    assert [int(body) for _, body, *_ in messages(await peer.fence())] == list(range(50))  # MQTT-3.8.4-3, -4


async def test_unsubscribed_deliveries_that_have_begun_are_finished(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(name, expiry=FOR_EVER), await peers.connect()
    await peer.subscribe(name, qos=2)
    await publisher.publish(name, b"begun", 2)
    message = await peer.receive(Publish)
    await peer.unsubscribe(name)
    await publisher.publish(name, b"too late", 2)
    await peer.send(PubRec(message.packet_id))
    assert await peer.receive(PubRel) == PubRel(message.packet_id)  # MQTT-3.10.4-3
    await peer.send(PubComp(message.packet_id))
    assert await peer.fence() == []


# No Local


@every_qos
async def test_no_local_keeps_a_clients_own_messages_away(peers: Peers, name: str, qos: int) -> None:
    peer, other = await peers.connect(), await peers.connect()
    await peer.subscribe(Request(name, 2, no_local=True), Request(f"{name}/own", 2))
    await peer.publish(name, b"mine", qos)
    await other.publish(name, b"theirs", qos)
    await other.publish(f"{name}/own", b"theirs", qos)
    got = messages(await peer.fence())
    assert got == [(name, b"theirs", qos, False), (f"{name}/own", b"theirs", qos, False)]  # MQTT-3.8.3-3


async def test_no_local_on_a_shared_subscription_is_a_protocol_error(peers: Peers, name: str) -> None:
    peer = await peers.connect()
    await peer.send(Subscribe(1, (Request(f"$share/g/{name}", 0, no_local=True),)))
    assert await peer.last_words() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]  # MQTT-3.8.3-4


# Retained


@both_versions
@every_qos
async def test_retained_message_waits_for_new_subscriptions(
    peers: Peers, name: str, version: Version, qos: int
) -> None:
    publisher, peer = await peers.connect("", version), await peers.connect("", version)
    await publisher.publish(name, b"old", qos, retain=True)
    await publisher.publish(name, b"new", qos, retain=True)
    await publisher.publish(name, b"not kept", qos)
    await peer.subscribe(name, qos=2)
    got = messages([await peer.receive(Publish)])
    assert got == [(name, b"new", qos, True)]  # MQTT-3.3.1-8
    assert await peer.fence() == []


@both_versions
async def test_empty_retained_message_is_passed_on_and_erases(
    peers: Peers, name: str, version: Version
) -> None:
    publisher, peer, late = [await peers.connect("", version) for _ in range(3)]
    await publisher.publish(name, b"kept", retain=True)
    await peer.subscribe(name)
    assert (await peer.receive(Publish)).retain
    await publisher.publish(name, b"", retain=True)
    assert messages(await peer.fence()) == [(name, b"", 0, False)]  # MQTT-3.3.1-6
    await late.subscribe(name)
    assert await late.fence() == []


@pytest.mark.parametrize(
    ("handling", "first", "again"), [(0, True, True), (1, True, False), (2, False, False)]
)
async def test_retain_handling_decides_what_a_subscription_brings(
    peers: Peers, name: str, handling: int, first: bool, again: bool
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await publisher.publish(name, b"kept", retain=True)
    for is_wanted in (first, again):
        await peer.subscribe(Request(name, retain_handling=handling))
        got = await peer.fence() + await peer.fence()
        assert payloads(got) == ([b"kept"] if is_wanted else [])  # MQTT-3.3.1-9 to -11


async def test_retain_as_published_keeps_the_flag_of_live_messages(peers: Peers, name: str) -> None:
    publisher, bare, kept = [await peers.connect() for _ in range(3)]
    await bare.subscribe(Request(name, 1))
    await kept.subscribe(Request(name, 1, retain_as_published=True))
    for retain in (True, False):
        await publisher.publish(name, b"x", retain=retain)
    assert [retain for *_, retain in messages(await bare.fence())] == [False, False]  # MQTT-3.3.1-12
    assert [retain for *_, retain in messages(await kept.fence())] == [True, False]  # MQTT-3.3.1-13


async def test_shared_subscription_brings_no_retained_messages(peers: Peers, name: str) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await publisher.publish(name, b"kept", retain=True)
    await peer.subscribe(f"$share/g/{name}")
    assert await peer.fence() + await peer.fence() == []


@both_versions
async def test_many_retained_messages_all_come_and_requests_are_answered_meanwhile(
    peers: Peers, name: str, version: Version, scale: int
) -> None:
    publisher, peer = await peers.connect("", version), await peers.connect("", version)
    count = 2_000 * scale
    for number in range(count):
        publisher.stream.write(Publish(f"{name}/{number}", b"x" * 500, retain=True))
    await publisher.fence()
    await peer.subscribe(f"{name}/#", qos=1)
    topics: set[str] = set()
    while len(topics) < count:
        topics |= {topic for topic, *_ in messages(await peer.fence())}
    assert topics == {f"{name}/{number}" for number in range(count)}
    for number in range(count):
        publisher.stream.write(Publish(f"{name}/{number}", b"", retain=True))
    await publisher.fence()


# Shared


async def gather(members: list[Peer]) -> list[list[bytes]]:
    """What each member has, acknowledged."""
    found: list[list[bytes]] = []
    for member in members:
        got = [packet for packet in await member.fence() if isinstance(packet, Publish)]
        await member.send(*(PubAck(message.packet_id) for message in got if message.qos == 1))
        found.append(payloads(got))
    return found


@both_versions
@pytest.mark.parametrize("qos", [0, 1])
async def test_each_message_of_a_shared_group_goes_to_one_member(
    peers: Peers, name: str, version: Version, qos: int
) -> None:
    members = [await peers.connect("", version) for _ in range(3)]
    for member in members:
        await member.subscribe(f"$share/group/{name}/+", qos=1)
    witness, publisher = await peers.connect(), await peers.connect()
    await witness.subscribe(f"$share/other/{name}/+", f"{name}/#")
    for number in range(30):
        await publisher.publish(f"{name}/{number}", b"%d" % number, qos)
    await publisher.fence()
    found = await gather(members)
    assert sorted(int(body) for bodies in found for body in bodies) == list(range(30))
    assert [len(bodies) for bodies in found] == [10, 10, 10]
    assert len(await witness.fence()) == 60  # as the only one of its group, and by itself


async def test_shared_member_that_leaves_gives_back_what_it_had_not_acknowledged(
    peers: Peers, name: str
) -> None:
    first, second, publisher = await peers.connect(), await peers.connect(), await peers.connect()
    for member in (first, second):
        await member.subscribe(f"$share/group/{name}", qos=1)
    for number in range(10):
        await publisher.publish(name, b"%d" % number)
    mine, theirs = await first.fence(), await second.fence()
    assert len(mine) == len(theirs) == 5
    await first.leave()
    back = await second.fence()
    assert payloads(back) == payloads(mine)


async def test_shared_message_at_qos_2_stays_with_its_member(peers: Peers, name: str) -> None:
    first, second = await peers.connect(name, expiry=FOR_EVER), await peers.connect()
    publisher = await peers.connect()
    await first.subscribe(f"$share/group/{name}", qos=2)
    await publisher.publish(name, b"x", 2)
    begun = await first.receive(Publish)
    await second.subscribe(f"$share/group/{name}", qos=2)
    await first.leave()
    assert await second.fence() == []  # MQTT-4.8.2-4
    first = await peers.connect(name, expiry=FOR_EVER, clean=False)
    again = await first.receive(Publish)
    assert (again.payload, again.packet_id, again.dup) == (b"x", begun.packet_id, True)


async def test_shared_message_that_is_refused_goes_to_nobody_else(peers: Peers, name: str) -> None:
    first, second, publisher = await peers.connect(), await peers.connect(), await peers.connect()
    await first.subscribe(f"$share/group/{name}", qos=1)
    await publisher.publish(name, b"x")
    await second.subscribe(f"$share/group/{name}", qos=1)
    message = await first.receive(Publish)
    await first.send(PubAck(message.packet_id, ReasonCode.UNSPECIFIED_ERROR))
    await first.leave()
    assert await second.fence() == []  # MQTT-4.8.2-6


async def test_group_whose_members_are_all_away_is_owed(peers: Peers, name: str) -> None:
    member = await peers.connect(name, expiry=FOR_EVER)
    await member.subscribe(f"$share/group/{name}", qos=1)
    await member.leave()
    publisher, other = await peers.connect(), await peers.connect()
    for number in range(5):
        await publisher.publish(name, b"%d" % number)
    await other.send(Subscribe(1, (Request(f"$share/group/{name}", 1),)))
    got = [packet for packet in await other.fence() if packet != SubAck(1, (1,))]  # which may come later
    assert payloads(got) == [b"%d" % number for number in range(5)]
