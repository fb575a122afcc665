"""MQTT 3.1.1, sections 3.8 to 3.11: subscribing and unsubscribing."""

import pytest

from penstock.wire.mqtt import (
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Request,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)
from tests.conformance.statements import v311
from tests.conformance.v311_bytes import ending, frame, text
from tests.doors.mqtt.peers import Peers, every_qos, payloads
from tests.support.servers import StartServer

ID = b"\x00\x01"


def bodies(packets: list[Packet]) -> list[bytes]:
    """The payloads of the messages among packets."""
    return [packet.payload for packet in packets if isinstance(packet, Publish)]


# Subscribing


@pytest.mark.parametrize("filter", ["#", "+", "a/#", "a/+/b", "/+", "+/#"])
@v311("3.8.3-2")
async def test_v311_mqtt_3_8_3_2_server_without_wildcards_refuses_filters_that_have_some(
    plain_port: int, peers_311: Peers, filter: str
) -> None:
    peer = await peers_311.connect(port=plain_port)
    assert await peer.subscribe("a/b", filter, "c") == (0, 0x80, 0)


@pytest.fixture(scope="module")
def plain_port(start_server: StartServer) -> int:
    """Where a server listens that was told to take no wildcards."""
    return start_server({"mqtt": {"wildcard_subscriptions": False}}).port


@pytest.mark.parametrize("body", [ID, ID + text("a"), ID + text("a") + b"\x00" + text("b"), b"\x00", b""])
@v311("3.8.3-3")
async def test_v311_mqtt_3_8_3_3_subscribe_without_a_whole_pair_closes_the_connection(
    peers_311: Peers, body: bytes
) -> None:
    assert await ending(peers_311, frame(0x82, body)) == []


@pytest.mark.parametrize("options", [0x03, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF])
@v311("3.8.3-4")
async def test_v311_mqtt_3_8_3_4_reserved_options_and_qos_3_close_the_connection(
    peers_311: Peers, options: int
) -> None:
    good, bad = text("a") + b"\x00", text("b") + bytes((options,))
    assert await ending(peers_311, frame(0x82, ID + good + bad)) == []


@every_qos
@v311("3.8.4-1", "3.8.4-2", "3.8.4-5")
async def test_v311_mqtt_3_8_4_1_subscribe_is_answered_with_what_was_granted(
    peers_311: Peers, name: str, qos: int
) -> None:
    peer = await peers_311.connect()
    for packet_id in (7, 300, 65_535):
        await peer.send(Subscribe(packet_id, (Request(name, qos),)))
        assert await peer.fence() == [SubAck(packet_id, (qos,))]


@v311("3.8.4-3")
async def test_v311_mqtt_3_8_4_3_same_filter_again_replaces_the_subscription(
    peers_311: Peers, name: str
) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await publisher.publish(name, b"kept", 1, retain=True)
    for qos in (2, 0, 1):
        assert await peer.subscribe(name, qos=qos) == (qos,)
        again = await peer.receive(Publish)
        assert (again.payload, again.retain, again.qos) == (b"kept", True, min(qos, 1))
        await publisher.publish(name, b"live", 2)
        live = await peer.receive(Publish)
        assert (live.payload, live.qos) == (b"live", qos)
        assert await peer.fence() == []  # one subscription, one copy
    await peer.unsubscribe(name)
    await publisher.publish(name, b"late", 2)
    assert await peer.fence() == []


@v311("3.8.4-3")
async def test_v311_mqtt_3_8_4_3_replacing_a_subscription_loses_no_message(
    peers_311: Peers, name: str
) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await peer.subscribe(name, qos=1)
    for number in range(50):
        await publisher.send(Publish(name, b"%d" % number))
        await peer.send(Subscribe(7, (Request(name, number % 3),)))
    await publisher.fence()
    assert [int(body) for body in bodies(await peer.fence())] == list(range(50))


@v311("3.8.4-4", "3.9.3-1", "3.8.4-5")
async def test_v311_mqtt_3_8_4_4_several_filters_get_one_answer(peers_311: Peers, name: str) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    asked = (Request(f"{name}/b", 2), Request(f"{name}/a", 0), Request(f"{name}/+/c", 1))
    await peer.send(Subscribe(9, asked))
    assert await peer.fence() == [SubAck(9, (2, 0, 1))]
    for topic in ("a", "b", "b/c", "d"):
        await publisher.publish(f"{name}/{topic}", topic.encode(), 2)
    got = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert [(message.payload, message.qos) for message in got] == [(b"a", 0), (b"b", 2), (b"b/c", 1)]


@pytest.mark.parametrize("granted", range(3))
@every_qos
@v311("3.8.4-6")
async def test_v311_mqtt_3_8_4_6_message_comes_at_the_lower_of_both_qos(
    peers_311: Peers, name: str, qos: int, granted: int
) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await peer.subscribe(name, qos=granted)
    await publisher.publish(name, b"x", qos)
    got = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert [message.qos for message in got] == [min(qos, granted)]


# Unsubscribing


@pytest.mark.parametrize("body", [ID, ID + b"\x00", ID + b"\x00\x05a", b"\x00", b""])
@v311("3.10.3-2")
async def test_v311_mqtt_3_10_3_2_unsubscribe_without_a_whole_filter_closes_the_connection(
    peers_311: Peers, body: bytes
) -> None:
    assert await ending(peers_311, frame(0xA2, body)) == []


@pytest.mark.parametrize("other", ["{}/#", "{}/b", "{}/a/", "{}/A", "{}/+/", "/{}/+", "+/a"])
@v311("3.10.4-1", "3.10.4-5")
async def test_v311_mqtt_3_10_4_1_only_the_very_same_filter_is_removed(
    peers_311: Peers, name: str, other: str
) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await peer.subscribe(f"{name}/+", f"{name}/a", qos=1)
    await peer.unsubscribe(other.format(name))
    await publisher.publish(f"{name}/a", b"x")
    await publisher.publish(f"{name}/c", b"y")
    assert set(payloads(await peer.fence())) == {b"x", b"y"}


@v311("3.10.4-1", "3.10.4-2")
async def test_v311_mqtt_3_10_4_2_nothing_comes_after_unsubscribing(peers_311: Peers, name: str) -> None:
    peer, publisher = await peers_311.connect(name, clean=False), await peers_311.connect()
    await peer.subscribe(f"{name}/+", f"{name}/+/x", f"{name}/a", qos=2)
    await peer.unsubscribe(f"{name}/+")
    for qos in range(3):
        await publisher.publish(f"{name}/b", b"late", qos)
        await publisher.publish(f"{name}/a", b"%d" % qos, qos)
    assert payloads(await peer.fence()) == [b"0", b"1", b"2"]
    await peer.unsubscribe(f"{name}/a")
    await peer.leave()
    await publisher.publish(f"{name}/a", b"late")
    peer = await peers_311.connect(name, clean=False)
    assert sorted(bodies(await peer.fence())) == [b"1", b"2"]  # begun, and not acknowledged


@v311("3.10.4-3")
async def test_v311_mqtt_3_10_4_3_deliveries_that_have_begun_are_finished(
    peers_311: Peers, name: str
) -> None:
    peer, publisher = await peers_311.connect(name, clean=False), await peers_311.connect()
    await peer.subscribe(name, qos=2)
    for qos in (1, 2, 2):
        await publisher.publish(name, b"x", qos)
    one, two, three = [(await peer.receive(Publish)).packet_id for _ in range(3)]
    await peer.send(PubRec(three))
    assert await peer.receive(PubRel) == PubRel(three)
    await peer.unsubscribe(name)
    await peer.send(PubRec(two), PubComp(three))
    assert await peer.fence() == [PubRel(two)]
    await peer.cut()
    peer = await peers_311.connect(name, clean=False)
    assert await peer.fence() == [Publish(name, b"x", 1, dup=True, packet_id=one), PubRel(two)]
    await peer.send(PubAck(one), PubComp(two))
    assert await peer.fence() == []


@v311("3.10.4-4", "3.10.4-5")
async def test_v311_mqtt_3_10_4_5_unsubscribe_is_answered_even_if_nothing_was_removed(
    peers_311: Peers, name: str
) -> None:
    peer = await peers_311.connect()
    await peer.subscribe(name)
    for packet_id in (5, 5, 400):
        await peer.send(Unsubscribe(packet_id, (name,)))
        assert await peer.fence() == [UnsubAck(packet_id)]


@v311("3.10.4-6")
async def test_v311_mqtt_3_10_4_6_several_filters_get_one_answer(peers_311: Peers, name: str) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await peer.subscribe(*(f"{name}/{topic}" for topic in "abcd"))
    await peer.send(Unsubscribe(9, (f"{name}/d", f"{name}/x", f"{name}/a", f"{name}/b")))
    assert await peer.fence() == [UnsubAck(9)]
    for topic in "abcd":
        await publisher.publish(f"{name}/{topic}", topic.encode())
    assert payloads(await peer.fence()) == [b"c"]
