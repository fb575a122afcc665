"""MQTT 5, sections 3.1.2.4, 3.1.2.11.2 and 3.1.4: what of a session is carried on."""

import asyncio
from typing import Any

import pytest

from penstock.wire.mqtt import (
    Connect,
    PacketProperties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    Version,
    Will,
)
from tests.conformance.endings import ending_of
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, payloads
from tests.support.servers import RunningServer, StartServer


@pytest.fixture(scope="module")
def prompt(start_server: StartServer) -> RunningServer:
    """A server that looks for sessions that are over twenty times a second."""
    return start_server({"reaper_interval_ms": 50})


async def left_behind(peers: Peers, name: str, qos: int = 1) -> Peer:
    """A session that wants a topic and whose client is away."""
    peer = await peers.connect(name, expiry=FOR_EVER)
    await peer.subscribe(name, qos=qos)
    await peer.leave()
    return peer


# Clean Start


@v5("3.1.2-4", "3.1.4-4", "3.2.2-2")
async def test_v5_mqtt_3_1_2_4_clean_start_begins_an_empty_session(peers: Peers, name: str) -> None:
    await left_behind(peers, name)
    publisher = await peers.connect()
    await publisher.publish(name, b"owed")
    peer = await peers.connect(name, clean=True, expiry=FOR_EVER)
    assert not peer.connack.session_present
    await publisher.publish(name, b"not subscribed")
    assert await peer.fence() == []


@v5("3.1.2-4")
async def test_v5_mqtt_3_1_2_4_clean_start_forgets_what_was_on_its_way(peers: Peers, name: str) -> None:
    publisher = await peers.connect()
    peer = await peers.connect(name, expiry=FOR_EVER)
    await peer.subscribe(name, qos=2)
    await publisher.publish(name, b"x", 2)
    await peer.send(Publish(f"{name}/in", b"x", 2, packet_id=5))
    assert {type(await peer.take()) for _ in range(2)} == {Publish, PubRec}
    await peer.cut()
    peer = await peers.connect(name, clean=True)
    await peer.send(PubRel(5))
    assert await peer.receive(PubComp) == PubComp(5, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    assert await peer.fence() == []


@v5("3.1.2-4", "3.1.4-4")
async def test_v5_mqtt_3_1_2_4_clean_start_ends_the_session_of_who_is_connected(
    peers: Peers, name: str
) -> None:
    old = await peers.connect(name, expiry=FOR_EVER)
    await old.subscribe(name, qos=1)
    new = await peers.connect(name, clean=True, expiry=FOR_EVER)
    assert not new.connack.session_present
    await new.send(Publish(name, b"nobody wants it"))
    assert await new.fence() == []


@v5("3.1.2-5", "3.1.4-4", "3.2.2-3")
async def test_v5_mqtt_3_1_2_5_session_that_exists_is_carried_on(peers: Peers, name: str) -> None:
    await left_behind(peers, name)
    publisher = await peers.connect()
    await publisher.publish(name, b"owed")
    peer = await peers.connect(name, clean=False)
    assert (peer.connack.session_present, peer.connack.reason) == (True, 0)
    await publisher.publish(name, b"live")
    assert payloads(await peer.receive_all(2)) == [b"owed", b"live"]


@v5("3.1.2-5")
async def test_v5_mqtt_3_1_2_5_session_of_who_is_connected_is_carried_on(peers: Peers, name: str) -> None:
    old = await peers.connect(name, expiry=FOR_EVER)
    await old.subscribe(name, qos=1)
    new = await peers.connect(name, clean=False, expiry=FOR_EVER)
    assert new.connack.session_present
    await new.send(Publish(name, b"still subscribed"))
    assert payloads(await new.fence()) == [b"still subscribed"]


@v5("3.1.2-5")
async def test_v5_mqtt_3_1_2_5_what_was_received_at_qos_2_is_remembered(peers: Peers, name: str) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name, qos=2)
    peer = await peers.connect(name, expiry=FOR_EVER)
    await peer.send(Publish(name, b"once", 2, packet_id=5))
    await peer.receive(PubRec)
    await peer.cut()
    peer = await peers.connect(name, clean=False, expiry=FOR_EVER)
    await peer.send(Publish(name, b"once", 2, dup=True, packet_id=5))
    assert (await peer.receive(PubRec)).packet_id == 5
    await peer.send(PubRel(5))
    assert await peer.receive(PubComp) == PubComp(5)
    assert payloads(await watcher.fence()) == [b"once"]


@v5("3.1.2-6", "3.2.2-3")
async def test_v5_mqtt_3_1_2_6_session_that_does_not_exist_is_made(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, clean=False, expiry=FOR_EVER)
    assert (peer.connack.session_present, peer.connack.reason) == (False, 0)
    await peer.leave()
    assert (await peers.connect(name, clean=False)).connack.session_present


# How long


@v5("3.1.2-23")
@pytest.mark.parametrize("is_cut", [False, True], ids=["after a goodbye", "after a broken link"])
async def test_v5_mqtt_3_1_2_23_session_with_an_expiry_is_kept(peers: Peers, name: str, is_cut: bool) -> None:
    peer = await peers.connect(name, expiry=100)
    await (peer.cut() if is_cut else peer.leave())
    assert (await peers.connect(name, clean=False)).connack.session_present


@v5("3.1.2-23")
@pytest.mark.parametrize("expiry", [None, 0])
async def test_v5_mqtt_3_1_2_23_session_without_an_expiry_ends_with_its_connection(
    peers: Peers, name: str, expiry: int | None
) -> None:
    peer = await peers.connect(name, expiry=expiry)
    await peer.subscribe(name, qos=1)
    await peer.leave()
    assert not (await peers.connect(name, clean=False)).connack.session_present


@v5("3.1.2-23")
async def test_v5_mqtt_3_1_2_23_session_ends_when_its_expiry_is_over(
    prompt: RunningServer, peers: Peers, name: str
) -> None:
    for client_id, expiry in ((f"{name}-1", 1), (f"{name}-100", 100)):
        await (await peers.connect(client_id, expiry=expiry, port=prompt.port)).leave()
    await asyncio.sleep(1.2)
    again = [await peers.connect(f"{name}-{n}", clean=False, port=prompt.port) for n in (1, 100)]
    assert [peer.connack.session_present for peer in again] == [False, True]


# Whose


@v5("3.1.3-2")
async def test_v5_mqtt_3_1_3_2_session_belongs_to_its_client_id(peers: Peers, name: str) -> None:
    await left_behind(peers, name)
    publisher = await peers.connect()
    await publisher.publish(name, b"owed")
    for other in (name.upper(), f"{name} ", name[:-1]):
        stranger = await peers.connect(other, clean=False)
        assert not stranger.connack.session_present
        assert await stranger.fence() == []
    peer = await peers.connect(name, clean=False)
    assert payloads(await peer.receive_all(1)) == [b"owed"]


@v5("3.1.4-3")
async def test_v5_mqtt_3_1_4_3_older_connection_of_a_client_id_is_told_and_closed(
    peers: Peers, name: str
) -> None:
    old = await peers.connect(name)
    new = await peers.connect(name)
    assert await ending_of(old) == ReasonCode.SESSION_TAKEN_OVER
    assert await new.fence() == []


@v5("3.1.4-3", "3.1.4-4")
@pytest.mark.parametrize(
    "refused",
    [
        {"will": Will("$SYS/mine", b"")},
        {"properties": PacketProperties(maximum_packet_size=5)},
        {"properties": PacketProperties(authentication_method="none that exists")},
    ],
    ids=["will", "size", "method"],
)
async def test_v5_mqtt_3_1_4_4_refused_connect_leaves_the_session_and_its_connection_alone(
    peers: Peers, name: str, refused: dict[str, Any]
) -> None:
    peer = await peers.connect(name, expiry=FOR_EVER)
    await peer.subscribe(name, qos=1)
    assert len(await peers.refused(Connect(name, Version.V5, **refused))) == 1
    await peer.send(Publish(name, b"still here"))
    assert payloads(await peer.fence()) == [b"still here"]


# Resending


@v5("3.3.1-1")
@pytest.mark.parametrize("qos", [1, 2])
async def test_v5_mqtt_3_3_1_1_message_that_is_sent_again_is_marked_as_duplicate(
    peers: Peers, name: str, qos: int
) -> None:
    peer, publisher = await peers.connect(name, expiry=FOR_EVER), await peers.connect()
    await peer.subscribe(name, qos=2)
    await publisher.publish(name, b"x", qos)
    first = await peer.receive(Publish)
    await peer.cut()
    peer = await peers.connect(name, clean=False)
    again = await peer.receive(Publish)
    assert (first.dup, again.dup) == (False, True)
    assert (again.packet_id, again.payload, again.qos) == (first.packet_id, b"x", qos)


@v5("3.3.1-1")
async def test_v5_mqtt_3_3_1_1_message_that_was_never_sent_is_no_duplicate(peers: Peers, name: str) -> None:
    await left_behind(peers, name)
    publisher = await peers.connect()
    await publisher.publish(name, b"x")
    peer = await peers.connect(name, clean=False)
    message = await peer.receive(Publish)
    assert not message.dup
    await peer.send(PubAck(message.packet_id))
