"""MQTT 5, sections 3.1.2.11 and 3.3.2.3: properties of messages, and who is told the reason of a refusal."""

from collections.abc import AsyncIterator

import pytest

from penstock.wire.mqtt import (
    Connect,
    Disconnect,
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
)
from tests.conformance.endings import ending_after, ending_of
from tests.conformance.statements import v5
from tests.conformance.v5_bytes import publish, refusal, text
from tests.doors.mqtt.peers import FOR_EVER, Peers, every_qos
from tests.support.servers import RunningServer, StartServer

MALFORMED = ReasonCode.MALFORMED_PACKET
PAIRS = (("b", "2"), ("a", "1"), ("b", "1"), ("", ""), ("b", "2"), ("ü", "水"))
PROPERTIES = {
    "bytes": PacketProperties(payload_format=0),
    "text": PacketProperties(payload_format=1),
    "response topic": PacketProperties(response_topic="where/to/answer"),
    "correlation data": PacketProperties(correlation_data=bytes(range(256))),
    "no correlation data": PacketProperties(correlation_data=b""),
    "content type": PacketProperties(content_type="text/plain; charset=utf-8"),
    "no content type": PacketProperties(content_type=""),
    "user properties": PacketProperties(user=PAIRS),
    "all of them": PacketProperties(1, None, "text/plain", "answer", b"\x00", user=PAIRS),
    "none of them": PacketProperties(),
}
CARRIED = ("3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-17", "3.3.2-18", "3.3.2-20")
NOT_TEXT = b"\xff\xfe"

every_property = pytest.mark.parametrize("given", PROPERTIES.values(), ids=PROPERTIES.keys())


@pytest.fixture
async def peers(server: RunningServer) -> AsyncIterator[Peers]:
    """Clients of the shared server who hear reasons in words, too."""
    peers = Peers(server.port)
    yield peers
    await peers.close()


# Carried unchanged


@v5(*CARRIED)
@every_property
@every_qos
async def test_v5_mqtt_3_3_2_4_properties_reach_every_subscriber_unchanged(
    peers: Peers, name: str, qos: int, given: PacketProperties
) -> None:
    publisher, *readers = [await peers.connect() for _ in range(3)]
    for reader, filter in zip(readers, ("{}/a", "{}/#"), strict=True):
        await reader.subscribe(filter.format(name), qos=2)
    await publisher.publish(f"{name}/a", b"x", qos, properties=given)
    for reader in readers:
        message = await reader.receive(Publish)
        assert (message.payload, message.properties) == (b"x", given)


@v5(*CARRIED)
@every_property
async def test_v5_mqtt_3_3_2_4_properties_are_kept_with_a_retained_message(
    peers: Peers, name: str, given: PacketProperties
) -> None:
    publisher, late = await peers.connect(), await peers.connect()
    await publisher.publish(name, b"x", retain=True, properties=given)
    await late.subscribe(name)
    assert (await late.receive(Publish)).properties == given


@v5(*CARRIED)
async def test_v5_mqtt_3_3_2_4_properties_are_kept_for_who_is_away(peers: Peers, name: str) -> None:
    given = PROPERTIES["all of them"]
    publisher, peer = await peers.connect(), await peers.connect(name, expiry=FOR_EVER)
    await peer.subscribe(name, qos=1)
    await peer.leave()
    await publisher.publish(name, b"x", properties=given)
    peer = await peers.connect(name, clean=False)
    assert (await peer.receive(Publish)).properties == given


# Strings and topics


@v5("3.3.2-13", "3.3.2-19")
@pytest.mark.parametrize("property", [b"\x08", b"\x03"], ids=["response topic", "content type"])
@pytest.mark.parametrize("bad", [b"a\xff", b"\xed\xa0\x80", b"a\x00"])
async def test_v5_mqtt_3_3_2_13_property_that_is_no_string_is_malformed(
    peers: Peers, name: str, property: bytes, bad: bytes
) -> None:
    data = publish(name, property + text(bad))
    assert await ending_after(await peers.connect(), data) == MALFORMED


@v5("3.3.2-14")
@pytest.mark.parametrize("topic", ["#", "+", "a/#", "a/+/b", "a+", ""])
async def test_v5_mqtt_3_3_2_14_response_topic_is_a_topic_without_wildcards(
    peers: Peers, name: str, topic: str
) -> None:
    peer = await peers.connect()
    await peer.send(Publish(name, b"x", properties=PacketProperties(response_topic=topic)))
    assert await ending_of(peer) == ReasonCode.TOPIC_NAME_INVALID


@v5("3.3.2-14")
async def test_v5_mqtt_3_3_2_14_response_topic_of_a_will_has_no_wildcards(peers: Peers, name: str) -> None:
    will = Will(name, b"x", properties=PacketProperties(response_topic=f"{name}/#"))
    reason = await refusal(peers, Connect(name, Version.V5, will=will))
    assert reason == ReasonCode.TOPIC_NAME_INVALID


# The format of the payload


@v5("3.3.2-4")
@pytest.mark.parametrize("qos", [1, 2])
async def test_v5_message_that_is_not_the_text_it_is_said_to_be_is_refused(
    peers: Peers, name: str, qos: int
) -> None:
    publisher, watcher = await peers.connect(), await peers.connect()
    await watcher.subscribe(name)
    reason = await publisher.publish(name, NOT_TEXT, qos, properties=PacketProperties(payload_format=1))
    assert reason == ReasonCode.PAYLOAD_FORMAT_INVALID
    assert await watcher.fence() == []


@v5("3.3.2-4")
async def test_v5_message_at_qos_0_that_is_not_the_text_it_is_said_to_be_ends_the_connection(
    peers: Peers, name: str
) -> None:
    peer = await peers.connect()
    await peer.send(Publish(name, NOT_TEXT, properties=PacketProperties(payload_format=1)))
    assert await ending_of(peer) == ReasonCode.PAYLOAD_FORMAT_INVALID


@v5("3.3.2-4", "3.1.4-2")
async def test_v5_will_that_is_not_the_text_it_is_said_to_be_is_refused(peers: Peers, name: str) -> None:
    will = Will(name, NOT_TEXT, properties=PacketProperties(payload_format=1))
    assert await refusal(peers, Connect(name, Version.V5, will=will)) == ReasonCode.PAYLOAD_FORMAT_INVALID


@v5("3.3.2-4")
async def test_v5_format_of_the_payload_is_passed_on_unseen_where_it_is_not_checked(
    start_server: StartServer, peers: Peers, name: str
) -> None:
    port = start_server({"mqtt": {"check_payload_format": False}}).port
    peer, given = await peers.connect(port=port), PacketProperties(payload_format=1)
    await peer.subscribe(name)
    await peer.send(Publish(name, NOT_TEXT, properties=given))
    assert await peer.receive(Publish) == Publish(name, NOT_TEXT, properties=given)


# Reasons in words


@v5("3.1.2-29")
@pytest.mark.parametrize("asked", [None, 1, 0])
async def test_v5_mqtt_3_1_2_29_reasons_are_given_in_words_unless_the_client_wants_none(
    peers: Peers, asked: int | None
) -> None:
    peer = await peers.connect(properties=PacketProperties(request_problem_information=asked))
    answers: list[PubAck | PubRec | SubAck] = []
    await peer.send(Publish("$SYS/mine", b"x", 1, packet_id=1))
    answers.append(await peer.receive(PubAck))
    await peer.send(Publish("$SYS/mine", b"x", 2, packet_id=2))
    answers.append(await peer.receive(PubRec))
    await peer.send(Subscribe(3, (Request("a/#/b"),)))
    answers.append(await peer.receive(SubAck))
    assert [bool(answer.properties.reason_string) for answer in answers] == [asked != 0] * 3
    assert not any(answer.properties.user for answer in answers)


@v5("3.1.2-29")
async def test_v5_mqtt_3_1_2_29_reason_of_the_end_is_given_in_words_to_who_asks(peers: Peers) -> None:
    peer = await peers.connect(properties=PacketProperties(request_problem_information=1))
    await peer.send_bytes(b"\x00\x00")
    (goodbye,) = await peer.last_words()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.properties.reason_string


@v5("3.1.2-29")
async def test_v5_mqtt_3_1_2_29_messages_keep_their_user_properties_in_any_case(
    peers: Peers, name: str
) -> None:
    peer = await peers.connect(properties=PacketProperties(request_problem_information=0))
    await peer.subscribe(name)
    await peer.send(Publish(name, b"x", properties=PacketProperties(user=PAIRS)))
    assert (await peer.receive(Publish)).properties.user == PAIRS
