"""MQTT 3.1.1, sections 3.1.2.5 to 3.1.2.7 and 3.14.4: what is said for a client that is gone."""

from collections.abc import Sequence

import pytest

from penstock.wire.mqtt import Disconnect, Packet, Publish, Will
from tests.conformance.statements import v311
from tests.conformance.v311_bytes import connect, refusal, text
from tests.doors.mqtt.peers import Peer, Peers, every_qos, payloads
from tests.support.servers import StartServer

CLEAN, WILL, WILL_RETAIN = 0x02, 0x04, 0x20
ID = text("c")


async def watching(peers: Peers, name: str) -> Peer:
    watcher = await peers.connect()
    await watcher.subscribe(name, qos=2)
    return watcher


def messages(packets: Sequence[Packet]) -> list[tuple[str, bytes, int, bool]]:
    return [
        (each.topic, each.payload, each.qos, each.retain) for each in packets if isinstance(each, Publish)
    ]


# Said


@every_qos
@v311("3.1.2-8", "3.1.2-9")
async def test_v311_mqtt_3_1_2_8_will_is_published_when_the_link_breaks(
    peers_311: Peers, name: str, qos: int
) -> None:
    watcher = await watching(peers_311, name)
    peer = await peers_311.connect(will=Will(name, b"gone", qos))
    assert await watcher.fence() == []
    await peer.cut()
    got = [await watcher.receive(Publish)]
    assert messages(got) == [(name, b"gone", qos, False)]


@v311("3.1.2-8")
async def test_v311_mqtt_3_1_2_8_will_is_published_when_the_client_closes_without_a_goodbye(
    peers_311: Peers, name: str
) -> None:
    watcher = await watching(peers_311, name)
    peer = await peers_311.connect(will=Will(name, b"gone"))
    await peer.stream.close()
    assert (await watcher.receive(Publish)).payload == b"gone"


@pytest.mark.parametrize("data", [b"\x00\x00", connect(CLEAN, ID), b"\x62\x02\x00\x00"])
@v311("3.1.2-8")
async def test_v311_mqtt_3_1_2_8_will_is_published_when_the_server_closes_on_an_error(
    peers_311: Peers, name: str, data: bytes
) -> None:
    watcher = await watching(peers_311, name)
    peer = await peers_311.connect(will=Will(name, b"gone"))
    await peer.send_bytes(data)
    assert await peer.last_words() == []
    assert payloads(await watcher.fence()) == [b"gone"]


@v311("3.1.2-8")
async def test_v311_mqtt_3_1_2_8_empty_will_is_published_too(peers_311: Peers, name: str) -> None:
    watcher = await watching(peers_311, name)
    peer = await peers_311.connect(will=Will(name, b""))
    await peer.cut()
    assert (await watcher.receive(Publish)).payload == b""


@pytest.mark.parametrize("is_retained", [False, True])
@v311("3.1.2-16", "3.1.2-17")
async def test_v311_mqtt_3_1_2_16_and_17_will_is_kept_if_its_retain_flag_is_set(
    peers_311: Peers, name: str, is_retained: bool
) -> None:
    watcher = await watching(peers_311, name)
    peer = await peers_311.connect(will=Will(name, b"gone", 1, is_retained))
    await peer.cut()
    assert not (await watcher.receive(Publish)).retain
    late = await watching(peers_311, name)
    assert messages(await late.fence()) == [(name, b"gone", 1, True)] * is_retained


# Not said


@v311("3.14.4-3", "3.1.2-8", "3.1.2-10")
async def test_v311_mqtt_3_14_4_3_goodbye_takes_the_will_with_it(peers_311: Peers, name: str) -> None:
    watcher = await watching(peers_311, name)
    peer = await peers_311.connect(will=Will(name, b"gone"))
    await peer.leave()
    assert await watcher.fence() == []


@v311("3.1.2-10")
async def test_v311_mqtt_3_1_2_10_will_is_forgotten_once_it_is_published(peers_311: Peers, name: str) -> None:
    watcher = await watching(peers_311, name)
    peer = await peers_311.connect(name, clean=False, will=Will(name, b"gone"))
    await peer.cut()
    assert (await watcher.receive(Publish)).payload == b"gone"
    peer = await peers_311.connect(name, clean=False)
    assert peer.connack.session_present
    await peer.cut()
    await peers_311.connect(name, clean=False)
    assert await watcher.fence() == []


@v311("3.1.2-10")
async def test_v311_mqtt_3_1_2_10_will_is_forgotten_after_a_goodbye(peers_311: Peers, name: str) -> None:
    watcher = await watching(peers_311, name)
    peer = await peers_311.connect(name, clean=False, will=Will(name, b"gone"))
    await peer.leave()
    peer = await peers_311.connect(name, clean=False)
    await peer.cut()
    await peers_311.connect(name, clean=False)
    assert await watcher.fence() == []


@v311("3.1.2-12")
async def test_v311_mqtt_3_1_2_12_without_a_will_nothing_is_published(
    start_server: StartServer, peers_311: Peers, name: str
) -> None:
    port = start_server().port  # where nobody else has anything to say
    watcher = await peers_311.connect(port=port)
    await watcher.subscribe("#")
    peer = await peers_311.connect(name, port=port)
    await peer.cut()
    await peers_311.connect(name, port=port)  # the end of the one before is past
    assert await watcher.fence() == []


@v311("3.14.4-3")
async def test_v311_mqtt_3_14_4_3_goodbye_in_the_chunk_of_other_packets_counts(
    peers_311: Peers, name: str
) -> None:
    watcher = await watching(peers_311, name)
    peer = await peers_311.connect(will=Will(name, b"gone"))
    await peer.send(Publish(name, b"last"), Disconnect())
    await peer.last_words()
    assert payloads(await watcher.fence()) == [b"last"]


# Refused


@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        pytest.param(CLEAN | WILL, [ID], id="no fields in spite of the flag"),
        pytest.param(CLEAN | WILL, [ID, text("topic")], id="no message in spite of the flag"),
        pytest.param(CLEAN, [ID, text("topic"), text("message")], id="fields without the flag"),
        pytest.param(CLEAN | 0x08, [ID], id="QoS 1 without the flag"),
        pytest.param(CLEAN | 0x10, [ID], id="QoS 2 without the flag"),
        pytest.param(CLEAN | WILL_RETAIN, [ID], id="retain without the flag"),
        pytest.param(CLEAN | 0x28, [ID, text("topic"), text("message")], id="all but the flag"),
        pytest.param(CLEAN | WILL | 0x18, [ID, text("topic"), text("message")], id="QoS 3"),
    ],
)
@v311("3.1.2-9", "3.1.2-11", "3.1.2-13", "3.1.2-14", "3.1.2-15")
async def test_v311_mqtt_3_1_2_9_to_15_flags_and_fields_of_a_will_must_agree(
    peers_311: Peers, flags: int, payload: list[bytes]
) -> None:
    assert await refusal(peers_311, connect(flags, *payload)) == []
