"""Reasons in words, for MQTT 5 clients that want them and packets that have room for them."""

from collections.abc import AsyncIterator

import pytest

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    PacketProperties,
    PingResp,
    PubAck,
    Publish,
    ReasonCode,
    Request,
    SubAck,
    Subscribe,
    Version,
    Will,
    encode_packet,
)
from tests.doors.mqtt.peers import Peers
from tests.support.servers import RunningServer

SILENT = PacketProperties(request_problem_information=0)


@pytest.fixture
async def peers(server: RunningServer) -> AsyncIterator[Peers]:
    """Clients that hear what they are told."""
    peers = Peers(server.port)
    yield peers
    await peers.close()


async def test_refused_publish_says_why(peers: Peers) -> None:
    peer = await peers.connect()
    await peer.send(Publish("$mine", b"", 1, packet_id=1))
    words = (await peer.receive(PubAck)).properties.reason_string
    assert words == "topics that begin with $ are the server's own"


async def test_refused_filters_say_why_each_reason_once(peers: Peers) -> None:
    peer = await peers.connect()
    await peer.send(Subscribe(1, tuple(Request("x" * 5_000) for _ in range(3))))
    suback = await peer.receive(SubAck)
    assert suback.reasons == (ReasonCode.TOPIC_FILTER_INVALID,) * 3
    words = suback.properties.reason_string
    assert words is not None
    assert "4096" in words
    assert ";" not in words


async def test_who_wants_no_words_gets_none(peers: Peers) -> None:
    peer = await peers.connect(properties=SILENT)
    await peer.send(Publish("$mine", b"", 1, packet_id=1))
    assert (await peer.receive(PubAck)).properties.reason_string is None  # MQTT-3.1.2-29
    await peer.send(Subscribe(2, (Request("x" * 5_000),)))
    assert (await peer.receive(SubAck)).properties.reason_string is None


@pytest.mark.parametrize(("asked", "words"), [(1, "PINGRESP is not expected here"), (0, None), (None, None)])
async def test_what_is_wrong_with_a_packet_is_told_to_who_asks_for_it(
    peers: Peers, asked: int | None, words: str | None
) -> None:
    peer = await peers.connect(properties=PacketProperties(request_problem_information=asked))
    await peer.send(PingResp())
    (goodbye,) = await peer.last_words()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.properties.reason_string == words


async def test_words_that_do_not_fit_are_left_out(peers: Peers) -> None:
    small = PacketProperties(maximum_packet_size=30, request_problem_information=1)
    peer = await peers.connect("small", properties=small)
    await peer.send(Publish("$mine", b"", 1, packet_id=1), PingResp())
    for packet in await peer.last_words():
        assert isinstance(packet, PubAck | Disconnect)
        assert packet.reason >= 0x80
        assert packet.properties.reason_string is None
        assert len(encode_packet(packet, Version.V5)) <= 30


async def test_refused_connection_says_why(peers: Peers) -> None:
    reply = await peers.refused(
        Connect("c", Version.V5, properties=PacketProperties(authentication_method="x"))
    )
    assert reply == [ConnAck(False, ReasonCode.BAD_AUTHENTICATION_METHOD)]
    will = Will("$mine", b"")
    (connack,) = await peers.refused(Connect("c", Version.V5, will=will))
    assert isinstance(connack, ConnAck)
    assert connack.properties.reason_string == "not allowed to publish to $mine"


async def test_words_of_the_client_are_repeated_only_in_part(peers: Peers) -> None:
    peer = await peers.connect()
    await peer.send(Publish("$" + "é" * 2_000, b"", 1, packet_id=1), Publish("a/" * 200, b"", 1, packet_id=2))
    for _ in range(2):
        words = (await peer.receive(PubAck)).properties.reason_string
        assert words is not None
        assert len(words) <= 256
