"""MQTT 5, sections 3.1.2.11.4 and 3.2.2.3.6: the largest packet of each side."""

from collections.abc import AsyncIterator

import pytest

from penstock.wire.mqtt import (
    Disconnect,
    Packet,
    PacketProperties,
    PubAck,
    Publish,
    PubRec,
    ReasonCode,
    Request,
    SubAck,
    Subscribe,
    Version,
    Will,
    encode_packet,
)
from tests.conformance.endings import SMALLEST_BYTES, ending_after, size_of
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, every_qos, payloads
from tests.support.servers import RunningServer, StartServer

LIMIT = 200


@pytest.fixture
async def peers(server: RunningServer) -> AsyncIterator[Peers]:
    """Clients of the shared server who hear reasons in words, too."""
    peers = Peers(server.port)
    yield peers
    await peers.close()


@pytest.fixture(scope="module")
def small(start_server: StartServer) -> RunningServer:
    return start_server({"mqtt": {"max_payload_bytes": 1_000, "max_control_bytes": 1_024}})


async def limited(peers: Peers, name: str, window: int | None = None) -> Peer:
    """A client that takes no packets above the limit, and wants a topic."""
    properties = PacketProperties(maximum_packet_size=LIMIT, session_expiry=FOR_EVER, receive_maximum=window)
    peer = await peers.connect(name, properties=properties)
    await peer.subscribe(name, qos=2)
    return peer


def filled(name: str, qos: int, size: int) -> bytes:
    """A payload that makes a message to a topic so large."""
    return bytes(size - size_of(Publish(name, bytes(128), qos, packet_id=1)) + 128)


# What the client takes


@v5("3.1.2-24")
@every_qos
async def test_v5_mqtt_3_1_2_24_message_may_be_as_large_as_the_client_takes_and_no_larger(
    peers: Peers, name: str, qos: int
) -> None:
    peer, publisher = await limited(peers, name), await peers.connect()
    for size in (LIMIT + 1, LIMIT, LIMIT + 1_000):
        await publisher.publish(name, filled(name, qos, size), qos)
    assert [size_of(packet) for packet in await peer.fence()] == [LIMIT]


@v5("3.1.2-24")
async def test_v5_mqtt_3_1_2_24_what_the_server_adds_to_a_message_counts(peers: Peers, name: str) -> None:
    peer, publisher = await limited(peers, name), await peers.connect()
    await peer.subscribe(Request(name, 2), properties=PacketProperties(subscription_ids=(300,)))
    for size in (LIMIT, LIMIT - 3):
        await publisher.publish(name, filled(name, 1, size))
    assert [size_of(packet) for packet in await peer.fence()] == [LIMIT]


@v5("3.1.2-24")
async def test_v5_mqtt_3_1_2_24_retained_message_that_is_too_large_is_not_sent(
    peers: Peers, name: str
) -> None:
    publisher = await peers.connect()
    await publisher.publish(name, filled(name, 1, LIMIT + 1), retain=True)
    assert await (await limited(peers, name)).fence() == []


@v5("3.1.2-24")
async def test_v5_mqtt_3_1_2_24_will_that_is_too_large_is_not_sent(peers: Peers, name: str) -> None:
    peer = await limited(peers, name)
    other = await peers.connect(will=Will(name, bytes(LIMIT), 1))
    await other.send_bytes(b"\x00\x00")
    await other.last_words()
    assert await peer.fence() == []


@v5("3.1.2-24")
async def test_v5_mqtt_3_1_2_24_answer_that_is_too_large_is_not_sent(peers: Peers, name: str) -> None:
    peer = await peers.connect(properties=PacketProperties(maximum_packet_size=SMALLEST_BYTES))
    await peer.send(Subscribe(1, tuple(Request(f"{name}/{number}") for number in range(SMALLEST_BYTES))))
    (goodbye,) = await peer.last_words()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason == ReasonCode.PACKET_TOO_LARGE
    assert size_of(goodbye) <= SMALLEST_BYTES


@v5("3.1.2-24")
async def test_v5_mqtt_3_1_2_24_reasons_in_words_are_left_out_where_they_do_not_fit(
    peers: Peers, name: str
) -> None:
    peer = await peers.connect(name, properties=PacketProperties(maximum_packet_size=40))
    words: list[Packet] = []
    for packet in (
        Publish("$SYS/mine", b"x", 1, packet_id=1),
        Publish("x" * 5_000, b"x", 2, packet_id=2),
        Subscribe(3, (Request(f"{name}/#/{name}"),)),
    ):
        await peer.send(packet)
        words.append(await peer.take())
    await peer.send_bytes(b"\x00\x00")
    words += await peer.last_words()
    assert [type(word) for word in words] == [PubAck, PubRec, SubAck, Disconnect]
    assert [word for word in words if size_of(word) > 40] == []


@v5("3.1.2-25")
@pytest.mark.parametrize("qos", [1, 2])
async def test_v5_mqtt_3_1_2_25_message_that_is_too_large_counts_as_delivered(
    peers: Peers, name: str, qos: int
) -> None:
    peer, publisher = await limited(peers, name, 1), await peers.connect()
    for body in (b"1", bytes(LIMIT), bytes(LIMIT), b"2"):
        await publisher.publish(name, body, 1 if len(body) < LIMIT else qos)
    first = await peer.receive(Publish)
    await peer.send(PubAck(first.packet_id))
    assert payloads([first, *await peer.receive_all(1)]) == [b"1", b"2"]
    await peer.leave()
    peer = await peers.connect(name, clean=False)
    assert await peer.fence() == []


@v5("3.1.2-25")
async def test_v5_mqtt_3_1_2_25_message_that_is_too_large_for_one_reaches_the_others(
    peers: Peers, name: str
) -> None:
    peer, other, publisher = await limited(peers, name), await peers.connect(), await peers.connect()
    await other.subscribe(name)
    await publisher.publish(name, bytes(LIMIT))
    assert payloads(await other.fence()) == [bytes(LIMIT)]
    assert await peer.fence() == []


@v5("3.1.2-25")
async def test_v5_mqtt_3_1_2_25_message_that_was_owed_and_is_too_large_is_given_up(
    peers: Peers, name: str
) -> None:
    peer, publisher = await limited(peers, name), await peers.connect()
    await peer.leave()
    for body in (bytes(LIMIT), b"small"):
        await publisher.publish(name, body)
    properties = PacketProperties(maximum_packet_size=LIMIT, receive_maximum=1)
    peer = await peers.connect(name, clean=False, properties=properties)
    assert payloads(await peer.receive_all(1)) == [b"small"]


# What the server takes


@v5("3.2.2-15")
async def test_v5_mqtt_3_2_2_15_packet_may_be_as_large_as_the_server_takes_and_no_larger(
    small: RunningServer, peers: Peers, name: str
) -> None:
    peer = await peers.connect(port=small.port)
    limit = peer.connack.properties.maximum_packet_size
    assert limit == 1_000 + 1_024
    await peer.send(Publish(name, filled(name, 0, limit)))
    assert await peer.fence() == []
    data = encode_packet(Publish(name, filled(name, 0, limit + 1)), Version.V5)
    assert await ending_after(peer, data) == ReasonCode.PACKET_TOO_LARGE
