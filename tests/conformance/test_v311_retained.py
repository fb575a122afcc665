"""MQTT 3.1.1, section 3.3.1.3: the last message of a topic, kept for those who come later."""

from penstock.wire.mqtt import Publish
from tests.conformance.statements import v311
from tests.doors.mqtt.peers import Peers, every_qos, payloads


async def retained(peers: Peers, filter: str) -> list[tuple[str, bytes, int, bool]]:
    """What a new subscription at QoS 2 is told: topic, payload, QoS and the retain flag."""
    peer = await peers.connect()
    await peer.subscribe(filter, qos=2)
    got = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    return [(message.topic, message.payload, message.qos, message.retain) for message in got]


@v311("3.1.2-7")
async def test_v311_mqtt_3_1_2_7_retained_message_outlives_the_session_of_its_sender(
    peers_311: Peers, name: str
) -> None:
    for is_clean in (True, False):
        peer = await peers_311.connect(name, clean=is_clean)
        await peer.publish(f"{name}/{is_clean}", b"kept", retain=True)
        await peer.leave()
    await (await peers_311.connect(name, clean=True)).leave()
    assert sorted(await retained(peers_311, f"{name}/+")) == [
        (f"{name}/False", b"kept", 1, True),
        (f"{name}/True", b"kept", 1, True),
    ]


@every_qos
@v311("3.3.1-5", "3.3.1-8")
async def test_v311_mqtt_3_3_1_5_retained_message_is_kept_with_its_qos(
    peers_311: Peers, name: str, qos: int
) -> None:
    publisher = await peers_311.connect()
    await publisher.publish(name, b"kept", qos, retain=True)
    for _ in range(2):  # for everyone who comes
        assert await retained(peers_311, name) == [(name, b"kept", qos, True)]


@v311("3.3.1-6", "3.3.1-8")
async def test_v311_mqtt_3_3_1_6_new_subscription_brings_the_last_message_of_each_topic(
    peers_311: Peers, name: str
) -> None:
    publisher = await peers_311.connect()
    for topic in ("a", "b", "a/c", "d"):
        for number in range(3):
            await publisher.publish(f"{name}/{topic}", b"%s %d" % (topic.encode(), number), retain=True)
    got = await retained(peers_311, f"{name}/+")
    assert sorted(payload for _, payload, *_ in got) == [b"a 2", b"b 2", b"d 2"]
    assert all(is_retained for *_, is_retained in got)


@v311("3.3.1-7")
async def test_v311_mqtt_3_3_1_7_qos_0_replaces_the_message_before(peers_311: Peers, name: str) -> None:
    publisher = await peers_311.connect()
    await publisher.publish(name, b"old", 2, retain=True)
    await publisher.publish(name, b"new", 0, retain=True)
    assert await retained(peers_311, name) == [(name, b"new", 0, True)]  # the standard also allows to drop it


@every_qos
@v311("3.3.1-9")
async def test_v311_mqtt_3_3_1_9_existing_subscription_gets_it_without_the_flag(
    peers_311: Peers, name: str, qos: int
) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await peer.subscribe(name, qos=qos)
    await publisher.publish(name, b"x", qos, retain=True)
    message = await peer.receive(Publish)
    assert (message.payload, message.retain) == (b"x", False)


@every_qos
@v311("3.3.1-10", "3.3.1-11")
async def test_v311_mqtt_3_3_1_10_empty_message_is_passed_on_and_clears_the_topic(
    peers_311: Peers, name: str, qos: int
) -> None:
    peer, publisher = await peers_311.connect(), await peers_311.connect()
    await publisher.publish(name, b"kept", 1, retain=True)
    await publisher.publish(f"{name}/other", b"kept", 1, retain=True)
    await peer.subscribe(name)
    assert payloads(await peer.fence()) == [b"kept"]
    await publisher.publish(name, b"", qos, retain=True)
    assert await peer.receive(Publish) == Publish(name, b"")
    assert await retained(peers_311, f"{name}/#") == [(f"{name}/other", b"kept", 1, True)]


@v311("3.3.1-11")
async def test_v311_mqtt_3_3_1_11_empty_message_is_not_kept(peers_311: Peers, name: str) -> None:
    publisher = await peers_311.connect()
    await publisher.publish(name, b"", retain=True)
    assert await retained(peers_311, name) == []


@every_qos
@v311("3.3.1-12")
async def test_v311_mqtt_3_3_1_12_message_without_the_flag_changes_nothing(
    peers_311: Peers, name: str, qos: int
) -> None:
    publisher = await peers_311.connect()
    await publisher.publish(name, b"live", qos)
    assert await retained(peers_311, name) == []
    await publisher.publish(name, b"kept", 1, retain=True)
    await publisher.publish(name, b"live", qos)
    await publisher.publish(name, b"", qos)
    assert await retained(peers_311, name) == [(name, b"kept", 1, True)]
