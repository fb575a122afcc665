"""MQTT 5.0: reasons in words, which are left out where a packet would be too large for its receiver."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.wire.mqtt import (
    NO_PROPERTIES,
    Disconnect,
    Packet,
    PacketProperties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Reply,
    Request,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)
from tests.conformance.endings import SMALLEST_BYTES, size_of
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import Peers
from tests.support.servers import RunningServer, StartServer

LONG = "closed/" + "x" * 100
"""A topic that nobody may use, and that makes any sentence about it long."""


@pytest.fixture(scope="module")
def strict(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """Guests may use only what is below `open`."""
    acl: Path = tmp_path_factory.mktemp("access") / "acl"
    acl.write_text("anonymous\nboth open/#\n", encoding="utf-8")
    return start_server({"access": {"acl_file": str(acl), "allow_anonymous": True}})


@pytest.fixture
async def peers(strict: RunningServer) -> AsyncIterator[Peers]:
    """Clients of the strict server that hear reasons in words."""
    peers = Peers(strict.port)
    yield peers
    await peers.close()


def limited(limit_bytes: int | None) -> PacketProperties:
    """What a client asks for that wants to know everything, in packets of this size."""
    return PacketProperties(request_problem_information=1, maximum_packet_size=limit_bytes)


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        (Publish(LONG, b"", 1, packet_id=9), PubAck),
        (Publish(LONG, b"", 2, packet_id=9), PubRec),
        (Subscribe(9, (Request(LONG),)), SubAck),
        (Disconnect(0, PacketProperties(session_expiry=1)), Disconnect),  # where there was none before
    ],
    ids=["PUBACK", "PUBREC", "SUBACK", "DISCONNECT"],
)
@v5("3.4.2-2", "3.4.2-3", "3.5.2-2", "3.5.2-3", "3.9.2-1", "3.9.2-2", "3.14.2-3", "3.14.2-4")
async def test_v5_mqtt_3_4_2_2_words_are_left_out_where_they_would_make_the_answer_too_large(
    peers: Peers, question: Packet, kind: type[PubAck | PubRec | SubAck | Disconnect]
) -> None:
    async def answer_within(limit_bytes: int | None) -> PubAck | PubRec | SubAck | Disconnect:
        peer = await peers.connect(properties=limited(limit_bytes))
        await peer.send(question)
        return await peer.receive(kind)

    told = await answer_within(None)
    assert told.properties.reason_string
    assert not told.properties.user
    assert await answer_within(size_of(told)) == told
    for limit_bytes in (size_of(told) - 1, SMALLEST_BYTES):
        assert await answer_within(limit_bytes) == replace(told, properties=NO_PROPERTIES)


@v5("3.6.2-2", "3.6.2-3", "3.7.2-2", "3.7.2-3", "3.11.2-1", "3.11.2-2")
async def test_v5_mqtt_3_6_2_2_other_answers_stay_within_the_size_too(peers: Peers) -> None:
    peer = await peers.connect(properties=limited(SMALLEST_BYTES))
    await peer.send(PubRec(1), PubRel(2), Unsubscribe(3, (LONG, "not/a#filter")))
    answers: list[Reply | UnsubAck] = [
        await peer.receive(PubRel),
        await peer.receive(PubComp),
        await peer.receive(UnsubAck),
    ]
    assert max(map(size_of, answers)) <= SMALLEST_BYTES
    assert [answer.properties.user for answer in answers] == [(), (), ()]
