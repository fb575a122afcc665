"""MQTT 5, section 3.2: CONNACK, and what it announces."""

from collections.abc import AsyncIterator

import pytest

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketProperties,
    PingReq,
    PingResp,
    Publish,
    ReasonCode,
    Request,
    SubAck,
    Subscribe,
    Version,
    Will,
)
from tests.conformance.endings import ending_of, size_of
from tests.conformance.statements import v5
from tests.conformance.v5_bytes import RawPeer, connect, refusal, text
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers
from tests.support.servers import RunningServer, StartServer

TABLE = {
    *(0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99),
    *(0x9A, 0x9B, 0x9C, 0x9D, 0x9F),
}
"""The codes of CONNACK."""

every_lower_qos = pytest.mark.parametrize("maximum", [0, 1])


@pytest.fixture
async def peers(server: RunningServer) -> AsyncIterator[Peers]:
    """Clients of the shared server who hear reasons in words, too."""
    peers = Peers(server.port)
    yield peers
    await peers.close()


@pytest.fixture(scope="module")
def modest(start_server: StartServer) -> list[RunningServer]:
    """Servers without retained messages, by the highest QoS they have."""
    return [start_server({"mqtt": {"maximum_qos": qos, "retain_available": False}}) for qos in (0, 1)]


@pytest.fixture(scope="module")
def plain(start_server: StartServer) -> RunningServer:
    """A server that has only subscriptions of the simplest kind."""
    kinds = ("wildcard_subscriptions", "subscription_identifiers", "shared_subscriptions")
    return start_server({"mqtt": dict.fromkeys(kinds, False)})


# First, and once


@v5("3.2.0-1")
async def test_v5_mqtt_3_2_0_1_nothing_comes_before_connack(peers: Peers, name: str) -> None:
    publisher = await peers.connect()
    await publisher.publish(f"{name}/kept", b"kept", retain=True)
    old = await peers.connect(name, expiry=100)
    await old.subscribe(name, qos=1)
    await old.leave()
    await publisher.publish(name, b"owed")
    peer = await peers.open()
    hello = Connect(name, Version.V5, clean_start=False)
    await peer.send(hello, PingReq(), Subscribe(1, (Request(f"{name}/#", 1),)))
    assert isinstance(await peer.take(), ConnAck)
    assert {type(await peer.take()) for _ in range(4)} == {PingResp, SubAck, Publish}


@v5("3.2.0-2")
async def test_v5_mqtt_3_2_0_2_connack_comes_once(peers: Peers, name: str) -> None:
    peer = await peers.connect(name)
    await peer.send(PingReq(), Subscribe(1, (Request(name),)), Connect(name, Version.V5))
    assert ConnAck not in [type(packet) for packet in await peer.last_words()]


@v5("3.2.2-1")
@pytest.mark.parametrize("is_known", [False, True])
async def test_v5_mqtt_3_2_2_1_flags_tell_of_the_session_and_nothing_else(
    server: RunningServer, peers: Peers, name: str, is_known: bool
) -> None:
    if is_known:
        await peers.connect(name, expiry=100)
    async with await RawPeer.open(server.port) as peer:
        connack = await peer.ask(Connect(name, Version.V5, clean_start=False))
    assert (connack[0], connack[2], connack[3]) == (0x20, is_known, 0)


# Refusals

LONG_WILL = Will("t", bytes(60_000), properties=PacketProperties(user=(("k", "v" * 10_000),)))
REFUSED: dict[str, tuple[bytes | Connect, ReasonCode]] = {
    "malformed": (connect(text("c"), flags=1), ReasonCode.MALFORMED_PACKET),
    "window of zero": (connect(text("c"), properties=b"\x03\x21\x00\x00"), ReasonCode.PROTOCOL_ERROR),
    "version": (connect(text("c"), level=6), ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    "method": (connect(text("c"), properties=b"\x04\x15" + text("x")), ReasonCode.BAD_AUTHENTICATION_METHOD),
    "topic": (Connect("c", Version.V5, will=Will("x" * 5_000, b"")), ReasonCode.TOPIC_NAME_INVALID),
    "rights": (Connect("c", Version.V5, will=Will("$SYS/mine", b"")), ReasonCode.NOT_AUTHORIZED),
    "size": (Connect("c", Version.V5, will=LONG_WILL), ReasonCode.PACKET_TOO_LARGE),
}


@v5("3.2.2-7", "3.2.2-8")
@pytest.mark.parametrize("case", REFUSED)
async def test_v5_mqtt_3_2_2_7_refusal_has_a_code_of_the_table_and_closes(peers: Peers, case: str) -> None:
    first, reason = REFUSED[case]
    assert await refusal(peers, first) == reason
    assert reason in TABLE


@v5("3.2.2-6")
async def test_v5_mqtt_3_2_2_6_refusal_does_not_tell_of_the_session(peers: Peers, name: str) -> None:
    await (await peers.connect(name, expiry=100)).leave()
    bad_will = Will("$SYS/mine", b"")
    (connack,) = await peers.refused(Connect(name, Version.V5, clean_start=False, will=bad_will))
    assert isinstance(connack, ConnAck)
    assert (connack.session_present, connack.reason) == (False, ReasonCode.NOT_AUTHORIZED)
    assert (await peers.connect(name, clean=False)).connack.session_present


# What the server has


@v5("3.2.2-9")
async def test_v5_mqtt_3_2_2_9_highest_qos_is_told_where_it_is_not_2(
    modest: list[RunningServer], peers: Peers
) -> None:
    told = [(await peers.connect(port=one.port)).connack.properties.maximum_qos for one in modest]
    assert told == [0, 1]
    assert (await peers.connect()).connack.properties.maximum_qos is None


@v5("3.2.2-10")
@every_lower_qos
async def test_v5_mqtt_3_2_2_10_subscription_to_a_higher_qos_is_granted_what_there_is(
    modest: list[RunningServer], peers: Peers, name: str, maximum: int
) -> None:
    peer = await peers.connect(port=modest[maximum].port)
    granted = await peer.subscribe(*(Request(f"{name}/{qos}", qos) for qos in range(3)))
    assert granted == tuple(min(qos, maximum) for qos in range(3))
    await peer.send(Publish(f"{name}/2", b"x"))
    assert (await peer.receive(Publish)).payload == b"x"


@v5("3.2.2-11")
@every_lower_qos
async def test_v5_mqtt_3_2_2_11_publish_above_the_highest_qos_ends_the_connection(
    modest: list[RunningServer], peers: Peers, name: str, maximum: int
) -> None:
    peer = await peers.connect(port=modest[maximum].port)
    await peer.publish(name, b"x", maximum)
    await peer.send(Publish(name, b"x", maximum + 1, packet_id=9))
    assert await ending_of(peer) == ReasonCode.QOS_NOT_SUPPORTED


@v5("3.2.2-12")
@every_lower_qos
async def test_v5_mqtt_3_2_2_12_will_above_the_highest_qos_is_refused(
    modest: list[RunningServer], peers: Peers, name: str, maximum: int
) -> None:
    await peers.connect(name, will=Will(name, b"", maximum), port=modest[maximum].port)
    packet = Connect(name, Version.V5, will=Will(name, b"", maximum + 1))
    assert await refusal(peers, packet, modest[maximum].port) == ReasonCode.QOS_NOT_SUPPORTED


@v5("3.2.2-13")
async def test_v5_mqtt_3_2_2_13_retained_will_is_refused_where_nothing_is_retained(
    modest: list[RunningServer], peers: Peers, name: str
) -> None:
    packet = Connect(name, Version.V5, will=Will(name, b"", retain=True))
    assert await refusal(peers, packet, modest[0].port) == ReasonCode.RETAIN_NOT_SUPPORTED


@v5("3.2.2-14")
@pytest.mark.parametrize("payload", [b"x", b""])
async def test_v5_mqtt_3_2_2_14_retained_publish_ends_the_connection_where_nothing_is_retained(
    modest: list[RunningServer], peers: Peers, name: str, payload: bytes
) -> None:
    peer = await peers.connect(port=modest[0].port)
    assert peer.connack.properties.retain_available == 0
    await peer.send(Publish(name, payload, retain=True))
    assert await ending_of(peer) == ReasonCode.RETAIN_NOT_SUPPORTED


@v5("3.2.2-8")
async def test_v5_connack_tells_which_kinds_of_subscriptions_there_are_not(
    plain: RunningServer, peers: Peers
) -> None:
    for port, value in ((plain.port, 0), (None, None)):
        told = (await peers.connect(port=port)).connack.properties
        assert told.wildcard_subscription_available == value
        assert told.subscription_ids_available == value
        assert told.shared_subscription_available == value


async def refused_filter(peer: Peer, filter: str, properties: PacketProperties) -> int:
    """Why a filter is not granted, whether that ends the connection or not."""
    await peer.send(Subscribe(1, (Request(filter),), properties))
    answer = await peer.take()
    if isinstance(answer, SubAck):
        return answer.reasons[0]
    return int(getattr(answer, "reason", 0))


@v5("4.13.1-1")
@pytest.mark.parametrize(
    ("filter", "identifier", "reason"),
    [
        ("{}/+", 0, ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
        ("{}/#", 0, ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
        ("$share/g/{}", 0, ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED),
        ("{}", 7, ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED),
        ("{}", 0, ReasonCode.SUCCESS),
    ],
)
async def test_v5_subscription_of_a_kind_that_there_is_not_is_refused_by_its_name(
    plain: RunningServer, peers: Peers, name: str, filter: str, identifier: int, reason: ReasonCode
) -> None:
    peer = await peers.connect(port=plain.port)
    properties = PacketProperties(subscription_ids=(identifier,) if identifier else ())
    assert await refused_filter(peer, filter.format(name), properties) == reason


# Size


async def words_within(peers: Peers, limit: int, packet: Connect) -> list[Packet]:
    """What the server says to a CONNECT of a client that takes no larger packets than this."""
    properties = PacketProperties(maximum_packet_size=limit)
    return await peers.refused(Connect(packet.client_id, Version.V5, will=packet.will, properties=properties))


@v5("3.2.2-19")
async def test_v5_mqtt_3_2_2_19_reason_is_left_out_where_connack_would_be_too_large(
    peers: Peers, name: str
) -> None:
    refused = Connect(name, Version.V5, will=Will("$SYS/mine", b""))
    (connack,) = await peers.refused(refused)
    assert isinstance(connack, ConnAck)
    assert connack.properties.reason_string
    size = size_of(connack)
    assert await words_within(peers, size, refused) == [connack]
    assert await words_within(peers, size - 1, refused) == [ConnAck(False, connack.reason)]


@v5("3.2.2-20", "3.1.2-24")
@pytest.mark.parametrize("client_id", ["", "c" * 60], ids=["given", "own"])
@pytest.mark.parametrize("limit", [1, 4, 5, 20, 63, 64, 80, 100, 120])
async def test_v5_mqtt_3_2_2_20_connack_is_never_larger_than_the_client_takes(
    peers: Peers, client_id: str, limit: int
) -> None:
    asked = PacketProperties(
        session_expiry=FOR_EVER, request_response_information=1, maximum_packet_size=limit
    )
    peer = await peers.open()
    goodbye = Disconnect(properties=PacketProperties(session_expiry=0))
    await peer.send(Connect(client_id, Version.V5, properties=asked), goodbye)
    assert [word for word in await peer.last_words() if size_of(word) > limit] == []


# Response information


@v5("3.1.2-28")
@pytest.mark.parametrize("asked", [None, 0, 1])
async def test_v5_mqtt_3_1_2_28_response_information_is_given_only_if_asked_for(
    peers: Peers, name: str, asked: int | None
) -> None:
    peer = await peers.connect(name, properties=PacketProperties(request_response_information=asked))
    given = peer.connack.properties.response_information
    assert given == (f"response/{name}" if asked else None)
