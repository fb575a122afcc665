"""MQTT 5.0, section 4.6: message ordering."""

from penstock.wire.mqtt import PacketProperties, PubAck, Publish, PubRec, PubRel, Version, encode_packet
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, every_qos, payloads

COUNT = 60


async def publish_all(peer: Peer, topic: str, qos: int, count: int = COUNT) -> None:
    """Send numbered messages in one go, and take the answers."""
    packets = [
        Publish(topic, b"%d" % number, qos, packet_id=number + 1 if qos else 0) for number in range(count)
    ]
    await peer.send_bytes(b"".join(encode_packet(packet, Version.V5) for packet in packets))
    for _ in packets if qos else ():
        await peer.receive(PubAck if qos == 1 else PubRec)
    if not qos:
        await peer.fence()


async def take_all(peer: Peer, count: int) -> list[Publish]:
    """The next messages, received to their end and so out of the window."""
    messages: list[Publish] = []
    while len(messages) < count:
        packet = await peer.take()
        if isinstance(packet, Publish):
            messages.append(packet)
            if packet.qos:
                await peer.send(PubAck(packet.packet_id) if packet.qos == 1 else PubRec(packet.packet_id))
        else:
            assert isinstance(packet, PubRel), packet
    return messages


NUMBERS = [b"%d" % number for number in range(COUNT)]


@every_qos
@v5("4.6.0-5", "4.6.0-6")
async def test_v5_mqtt_4_6_0_5_subscribers_get_messages_in_the_order_they_came(
    peers: Peers, name: str, qos: int
) -> None:
    publisher = await peers.connect()
    subscribers = [await peers.connect() for _ in range(3)]
    for granted, subscriber in enumerate(subscribers):
        await subscriber.subscribe(f"{name}/#", qos=granted)
    await publish_all(publisher, f"{name}/t", qos)
    for subscriber in subscribers:
        assert payloads(await take_all(subscriber, COUNT)) == NUMBERS


@every_qos
@v5("4.6.0-5")
async def test_v5_mqtt_4_6_0_5_order_of_each_publisher_is_kept_among_others(
    peers: Peers, name: str, qos: int
) -> None:
    subscriber = await peers.connect()
    await subscriber.subscribe(name, qos=2)
    for publisher in (publishers := [await peers.connect() for _ in range(2)]):
        await publish_all(publisher, f"{name}/unheard", qos, 1)
    for number in range(COUNT):
        for index, publisher in enumerate(publishers):
            body = b"%d %d" % (index, number)
            await publisher.send(Publish(name, body, qos, packet_id=number + 10 if qos else 0))
    words = [message.payload.split() for message in await take_all(subscriber, 2 * COUNT)]
    for index in range(2):
        assert [number for sender, number in words if int(sender) == index] == NUMBERS


@v5("4.6.0-5")
async def test_v5_mqtt_4_6_0_5_small_window_does_not_change_the_order(peers: Peers, name: str) -> None:
    publisher = await peers.connect()
    subscriber = await peers.connect(properties=PacketProperties(receive_maximum=3))
    await subscriber.subscribe(name, qos=1)
    await publish_all(publisher, name, 1)
    assert payloads(await take_all(subscriber, COUNT)) == NUMBERS


@v5("4.6.0-5", "4.6.0-6")
async def test_v5_mqtt_4_6_0_5_order_lasts_through_a_broken_connection(peers: Peers, name: str) -> None:
    publisher, subscriber = await peers.connect(), await peers.connect(name, expiry=FOR_EVER)
    await subscriber.subscribe(name, qos=1)
    await publish_all(publisher, name, 1)
    begun = [await subscriber.receive(Publish) for _ in range(10)]
    await subscriber.send(*(PubAck(message.packet_id) for message in begun[:5]))
    await subscriber.fence()
    await subscriber.cut()
    await publish_all(publisher, name, 1)
    subscriber = await peers.connect(name, clean=False, expiry=FOR_EVER)
    got = await take_all(subscriber, 2 * COUNT - 5)
    assert [message.dup for message in got] == sorted((message.dup for message in got), reverse=True)
    assert payloads(got) == NUMBERS[5:] + NUMBERS


@every_qos
@v5("4.6.0-6")
async def test_v5_mqtt_4_6_0_6_messages_of_several_topics_keep_the_order_of_each(
    peers: Peers, name: str, qos: int
) -> None:
    publisher, subscriber = await peers.connect(), await peers.connect()
    await subscriber.subscribe(f"{name}/+", f"{name}/1", qos=qos)
    packets = [
        Publish(f"{name}/{number % 3}", b"%d" % number, qos, packet_id=number + 1 if qos else 0)
        for number in range(COUNT)
    ]
    await publisher.send_bytes(b"".join(encode_packet(packet, Version.V5) for packet in packets))
    got = await take_all(subscriber, COUNT)
    for index in range(3):
        bodies = [message.payload for message in got if message.topic == f"{name}/{index}"]
        assert bodies == NUMBERS[index::3]
