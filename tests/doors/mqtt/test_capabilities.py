"""What a server can be told not to offer: announced to MQTT 5 clients, and held against everyone."""

import pytest

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    PacketProperties,
    Publish,
    ReasonCode,
    Request,
    Version,
    Will,
)
from tests.doors.mqtt.peers import Peers, both_versions
from tests.support.servers import RunningServer, StartServer


@pytest.fixture(scope="module")
def plain(start_server: StartServer) -> RunningServer:
    """Offers as little as there is."""
    return start_server(
        {
            "mqtt": {
                "maximum_qos": 1,
                "retain_available": False,
                "wildcard_subscriptions": False,
                "shared_subscriptions": False,
                "subscription_identifiers": False,
                "response_topics": "",
            }
        }
    )


async def test_what_is_not_offered_is_announced(plain: RunningServer, peers: Peers) -> None:
    asked = PacketProperties(request_response_information=1)
    told = (await peers.connect(port=plain.port, properties=asked)).connack.properties
    assert told.maximum_qos == 1
    assert told.retain_available == 0
    assert told.wildcard_subscription_available == 0
    assert told.shared_subscription_available == 0
    assert told.subscription_ids_available == 0
    assert told.response_information is None


async def test_what_is_offered_goes_without_saying(peers: Peers) -> None:
    told = (await peers.connect()).connack.properties
    assert told.maximum_qos is told.retain_available is told.wildcard_subscription_available is None
    assert told.shared_subscription_available is told.subscription_ids_available is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Publish("t", b"", 2, packet_id=1), ReasonCode.QOS_NOT_SUPPORTED),
        (Publish("t", b"", 1, True, packet_id=1), ReasonCode.RETAIN_NOT_SUPPORTED),
        (Publish("t", b"", 0, True), ReasonCode.RETAIN_NOT_SUPPORTED),
    ],
)
@both_versions
async def test_publish_of_a_kind_that_is_not_taken_ends_the_connection(
    plain: RunningServer, peers: Peers, version: Version, message: Publish, reason: ReasonCode
) -> None:
    peer = await peers.connect("", version, port=plain.port)
    await peer.publish("t", b"known by now", 1)
    await peer.send(message)
    assert await peer.last_words() == ([Disconnect(reason)] if version is Version.V5 else [])


@pytest.mark.parametrize(
    ("will", "reason"),
    [
        (Will("t", b"", 2), ReasonCode.QOS_NOT_SUPPORTED),
        (Will("t", b"", 0, True), ReasonCode.RETAIN_NOT_SUPPORTED),
    ],
)
async def test_will_of_a_kind_that_is_not_taken_is_refused(
    plain: RunningServer, peers: Peers, will: Will, reason: ReasonCode
) -> None:
    refused = await peers.refused(Connect("", Version.V5, will=will), port=plain.port)
    assert refused == [ConnAck(False, reason)]


async def test_granted_qos_is_no_higher_than_what_is_offered(plain: RunningServer, peers: Peers) -> None:
    peer = await peers.connect(port=plain.port)
    assert await peer.subscribe(Request("t", 2), Request("u", 0)) == (1, 0)


@both_versions
async def test_subscription_of_a_kind_that_is_not_to_be_had_is_refused(
    plain: RunningServer, peers: Peers, version: Version
) -> None:
    peer = await peers.connect("", version, port=plain.port)
    wild, shared = ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED, 0x9E
    expected = (wild, wild, shared, 0) if version is Version.V5 else (0x80, 0x80, 0x80, 0)
    assert await peer.subscribe("a/+", "#", "$share/g/t", "t") == expected


async def test_identifier_where_there_are_none_is_refused(plain: RunningServer, peers: Peers) -> None:
    peer = await peers.connect(port=plain.port)
    named = PacketProperties(subscription_ids=(7,))
    refused = ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED
    assert await peer.subscribe("t", "u", properties=named) == (refused, refused)


# The payload format


@pytest.mark.parametrize("qos", [1, 2])
async def test_payload_that_is_not_the_text_it_is_said_to_be_is_refused(
    peers: Peers, name: str, qos: int
) -> None:
    reader, peer = await peers.connect(), await peers.connect()
    await reader.subscribe(name)
    text = PacketProperties(payload_format=1)
    assert await peer.publish(name, b"\xff", qos, properties=text) == ReasonCode.PAYLOAD_FORMAT_INVALID
    assert await peer.publish(name, "käse".encode(), qos, properties=text) == 0
    assert [packet.payload for packet in await reader.receive_all(1)] == ["käse".encode()]
    assert await reader.fence() == []


async def test_message_without_an_answer_that_is_not_its_text_ends_the_connection(
    peers: Peers, name: str
) -> None:
    peer = await peers.connect()
    await peer.send(Publish(name, b"\xff", properties=PacketProperties(payload_format=1)))
    assert await peer.last_words() == [Disconnect(ReasonCode.PAYLOAD_FORMAT_INVALID)]


async def test_will_that_is_not_its_text_is_refused(peers: Peers, name: str) -> None:
    will = Will(name, b"\xff", properties=PacketProperties(payload_format=1))
    refused = await peers.refused(Connect("", Version.V5, will=will))
    assert refused == [ConnAck(False, ReasonCode.PAYLOAD_FORMAT_INVALID)]


async def test_payload_is_not_looked_at_where_that_is_not_wanted(
    start_server: StartServer, peers: Peers
) -> None:
    port = start_server({"mqtt": {"check_payload_format": False}}).port
    peer = await peers.connect(port=port)
    await peer.subscribe("t")
    for qos in range(3):
        await peer.send(Publish("t", b"\xff", qos, packet_id=qos, properties=PacketProperties(1)))
    messages = [packet for packet in await peer.fence() if isinstance(packet, Publish)]
    assert [message.payload for message in messages] == [b"\xff"] * 3


# Where responses go


async def test_client_that_asks_is_told_where_responses_may_go(peers: Peers, name: str) -> None:
    asked = PacketProperties(request_response_information=1)
    peer = await peers.connect(name, properties=asked)
    assert peer.connack.properties.response_information == f"response/{name}"


@pytest.mark.parametrize("asked", [PacketProperties(), PacketProperties(request_response_information=0)])
async def test_client_that_does_not_ask_is_not_told(peers: Peers, asked: PacketProperties) -> None:
    assert (await peers.connect(properties=asked)).connack.properties.response_information is None


async def test_name_that_is_no_level_of_a_topic_gets_no_response_topics(peers: Peers, name: str) -> None:
    asked = PacketProperties(request_response_information=1)
    peer = await peers.connect(f"{name}/#", properties=asked)
    assert peer.connack.properties.response_information is None


async def test_name_that_leaves_no_room_for_response_topics_comes_in_without(peers: Peers, name: str) -> None:
    asked = PacketProperties(request_response_information=1)
    peer = await peers.connect(name + "x" * 65_000, properties=asked)
    assert peer.connack.properties.response_information is None
    assert await peer.fence() == []
