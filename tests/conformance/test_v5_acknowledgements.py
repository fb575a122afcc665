"""MQTT 5.0, sections 3.4 to 3.7: PUBACK, PUBREC, PUBREL and PUBCOMP."""

from pathlib import Path

import pytest

from penstock.wire.mqtt import (
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    Reply,
)
from tests.conformance.endings import ending_after, raw
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import Peer, Peers
from tests.support.servers import RunningServer, StartServer

PUBLISH_TABLE = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
"""The codes of PUBACK and PUBREC."""
RELEASE_TABLE = {0x00, 0x92}
"""The codes of PUBREL and PUBCOMP."""
MAX_TOPICS = 40

answered = pytest.mark.parametrize(
    ("qos", "kind"), [(1, PubAck), (2, PubRec)], ids=lambda value: getattr(value, "__name__", None)
)


@pytest.fixture(scope="module")
def strict(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """Guests may use only what is below `open`, three levels deep and not many topics of it."""
    acl: Path = tmp_path_factory.mktemp("access") / "acl"
    acl.write_text("anonymous\nboth open/#\n", encoding="utf-8")
    access = {"acl_file": str(acl), "allow_anonymous": True}
    return start_server({"access": access, "topic": {"max_topics": MAX_TOPICS, "max_levels": 3}})


async def answer_to(peer: Peer, topic: str, qos: int) -> Reply:
    """What the server answers to a message."""
    await peer.send(Publish(topic, b"", qos, packet_id=9))
    return await peer.receive(PubAck if qos == 1 else PubRec)


@answered
@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("closed", ReasonCode.NOT_AUTHORIZED),
        ("$SYS/closed", ReasonCode.NOT_AUTHORIZED),
        ("open/a/b/c", ReasonCode.TOPIC_NAME_INVALID),
    ],
)
@v5("3.4.2-1", "3.5.2-1")
async def test_v5_mqtt_3_4_2_1_answer_says_by_its_code_why_a_message_was_refused(
    strict: RunningServer, peers: Peers, topic: str, reason: ReasonCode, qos: int, kind: type[Reply]
) -> None:
    peer = await peers.connect(port=strict.port)
    answer = await answer_to(peer, topic, qos)
    assert type(answer) is kind
    assert answer.reason == reason
    assert answer.reason in PUBLISH_TABLE


@answered
@v5("3.4.2-1", "3.5.2-1")
async def test_v5_mqtt_3_4_2_1_topic_too_many_is_answered_as_such(
    strict: RunningServer, peers: Peers, qos: int, kind: type[Reply]
) -> None:
    peer = await peers.connect(port=strict.port)
    reasons = set()
    for number in range(MAX_TOPICS + 1):
        answer = await answer_to(peer, f"open/{qos}/{number}", qos)
        reasons.add(answer.reason)
        if qos == 2 and answer.reason < 0x80:
            await peer.send(PubRel(9))
            await peer.receive(PubComp)
    assert ReasonCode.QUOTA_EXCEEDED in reasons
    assert reasons <= PUBLISH_TABLE


@answered
@v5("3.4.2-1", "3.5.2-1")
async def test_v5_mqtt_3_4_2_1_message_that_nobody_gets_is_no_failure(
    peers: Peers, name: str, qos: int, kind: type[Reply]
) -> None:
    peer, watcher = await peers.connect(), await peers.connect()
    unheard = ReasonCode.NO_MATCHING_SUBSCRIBERS if qos == 1 else ReasonCode.SUCCESS
    assert await answer_to(peer, name, qos) == kind(9, unheard)
    if qos == 2:
        await peer.send(PubRel(9))
        assert await peer.receive(PubComp) == PubComp(9)
    await watcher.subscribe(name)
    assert await answer_to(peer, name, qos) == kind(9, ReasonCode.SUCCESS)


@v5("3.4.2-1", "3.5.2-1", "3.6.2-1", "3.7.2-1")
@pytest.mark.parametrize(
    ("first", "code"),
    [(0x40, 0x01), (0x40, 0x92), (0x50, 0x92), (0x50, 0xFF), (0x62, 0x10), (0x62, 0x80), (0x70, 0x87)],
    ids=lambda value: f"{value:#04x}",
)
async def test_v5_mqtt_3_4_2_1_code_from_another_table_is_a_protocol_error(
    peers: Peers, first: int, code: int
) -> None:
    peer = await peers.connect()
    assert await ending_after(peer, raw(first, bytes((0, 1, code)))) == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize("flags", [0, 1, 3, 4, 10, 15])
@v5("3.6.1-1")
async def test_v5_mqtt_3_6_1_1_pubrel_with_other_flags_is_malformed(peers: Peers, flags: int) -> None:
    peer = await peers.connect()
    data = raw(0x60 | flags, b"\x00\x01")
    assert await ending_after(peer, data) == ReasonCode.MALFORMED_PACKET


@v5("3.6.1-1", "3.6.2-1")
async def test_v5_mqtt_3_6_2_1_pubrel_tells_whether_the_message_was_on_its_way(
    peers: Peers, name: str
) -> None:
    peer, publisher = await peers.connect(), await peers.connect()
    await peer.subscribe(name, qos=2)
    await publisher.publish(name, b"x", 2)
    known = (await peer.receive(Publish)).packet_id
    await peer.send(PubRec(known), PubRec(known + 1))
    released = [await peer.receive(PubRel) for _ in range(2)]
    assert [(each.packet_id, each.reason) for each in released] == [(known, 0x00), (known + 1, 0x92)]
    assert {each.reason for each in released} == RELEASE_TABLE


@v5("3.7.2-1")
async def test_v5_mqtt_3_7_2_1_pubcomp_tells_whether_the_message_was_known(peers: Peers, name: str) -> None:
    peer = await peers.connect()
    await answer_to(peer, name, 2)
    await peer.send(PubRel(9), PubRel(9))
    completed = [await peer.receive(PubComp) for _ in range(2)]
    assert [(each.packet_id, each.reason) for each in completed] == [(9, 0x00), (9, 0x92)]
    assert {each.reason for each in completed} == RELEASE_TABLE
