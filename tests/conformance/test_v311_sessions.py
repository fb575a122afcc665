"""MQTT 3.1.1, sections 3.1.2.4, 3.1.4, 3.2.2, 4.1, 4.4 and 4.5: what outlives a connection."""

import asyncio

import pytest

from penstock.wire.mqtt import Packet, PubAck, PubComp, Publish, PubRec, PubRel
from tests.conformance.statements import v311
from tests.doors.mqtt.peers import Peer, Peers, payloads
from tests.support.servers import RunningServer, StartServer
from tests.support.waiting import TIMEOUT_S


@pytest.fixture(scope="module")
def forgetful(start_server: StartServer) -> RunningServer:
    """A server that keeps absent sessions for a tenth of a second."""
    return start_server({"sessions": {"max_expiry_s": 0.1}, "reaper_interval_ms": 50})


async def leave_subscribed(peers: Peers, name: str, filter: str) -> None:
    """Leave a session behind that wants a filter at QoS 2."""
    peer = await peers.connect(name, clean=False)
    await peer.subscribe(filter, qos=2)
    await peer.leave()


async def accept(peer: Peer, message: Publish) -> None:
    """Acknowledge a message as its QoS asks for."""
    if message.qos == 1:
        await peer.send(PubAck(message.packet_id))
    elif message.qos == 2:
        await peer.send(PubRec(message.packet_id))
        assert await peer.receive(PubRel) == PubRel(message.packet_id)
        await peer.send(PubComp(message.packet_id))


# Coming back


@v311("3.1.2-4", "3.2.2-2", "3.2.2-3", "4.1.0-1")
async def test_v311_mqtt_3_1_2_4_session_goes_on_where_it_was(peers_311: Peers, name: str) -> None:
    publisher = await peers_311.connect()
    peer = await peers_311.connect(name, clean=False)
    assert not peer.connack.session_present  # there was none
    await peer.subscribe(name, qos=2)
    await peer.leave()
    peer = await peers_311.connect(name, clean=False)
    assert peer.connack.session_present
    await publisher.publish(name, b"still subscribed", 2)
    assert (await peer.receive(Publish)).payload == b"still subscribed"


@v311("3.1.2-4", "4.1.0-1")
async def test_v311_mqtt_3_1_2_4_session_outlives_a_broken_link(peers_311: Peers, name: str) -> None:
    peer, publisher = await peers_311.connect(name, clean=False), await peers_311.connect()
    await peer.subscribe(name, qos=1)
    await peer.cut()
    peer = await peers_311.connect(name, clean=False)
    assert peer.connack.session_present
    await publisher.publish(name, b"still subscribed")
    assert payloads(await peer.fence()) == [b"still subscribed"]


@v311("3.1.2-5", "4.5.0-1")
async def test_v311_mqtt_3_1_2_5_absent_session_is_owed_what_it_subscribed_to(
    peers_311: Peers, name: str
) -> None:
    await leave_subscribed(peers_311, name, f"{name}/#")
    publisher = await peers_311.connect()
    for qos, payload in ((1, b"one"), (2, b"two"), (1, b"three")):
        await publisher.publish(f"{name}/{qos}", payload, qos)
    await publisher.publish(f"other/{name}", b"not for it")
    peer = await peers_311.connect(name, clean=False)
    owed = [await peer.receive(Publish) for _ in range(3)]
    assert [(message.payload, message.qos, message.dup) for message in owed] == [
        (b"one", 1, False),
        (b"two", 2, False),
        (b"three", 1, False),
    ]
    for message in owed:
        await accept(peer, message)
    await peer.leave()
    peer = await peers_311.connect(name, clean=False)
    assert await peer.fence() == []  # once


@v311("3.1.2-6", "3.1.4-3", "3.2.2-1")
async def test_v311_mqtt_3_1_2_6_clean_session_begins_empty(peers_311: Peers, name: str) -> None:
    await leave_subscribed(peers_311, name, name)
    publisher = await peers_311.connect()
    await publisher.publish(name, b"owed")
    peer = await peers_311.connect(name, clean=True)
    assert not peer.connack.session_present
    await publisher.publish(name, b"no longer subscribed to")
    assert await peer.fence() == []


@v311("3.1.2-6", "3.2.2-3", "3.1.4-3")
async def test_v311_mqtt_3_1_2_6_clean_session_ends_with_its_connection(peers_311: Peers, name: str) -> None:
    publisher = await peers_311.connect()
    peer = await peers_311.connect(name, clean=True)
    await peer.subscribe(name, qos=2)
    await publisher.publish(name, b"never acknowledged", 2)
    await peer.receive(Publish)
    await peer.leave()
    await publisher.publish(name, b"missed")
    peer = await peers_311.connect(name, clean=False)
    assert not peer.connack.session_present
    await publisher.publish(name, b"missed too")
    assert await peer.fence() == []


@v311("3.1.2-6", "3.1.4-3")
async def test_v311_mqtt_3_1_2_6_clean_session_cut_short_leaves_nothing_either(
    peers_311: Peers, name: str
) -> None:
    peer = await peers_311.connect(name, clean=True)
    await peer.subscribe(name, qos=2)
    await peer.cut()
    peer = await peers_311.connect(name, clean=False)
    assert not peer.connack.session_present


@v311("3.1.3-2")
async def test_v311_mqtt_3_1_3_2_sessions_belong_to_client_ids(peers_311: Peers, name: str) -> None:
    publisher = await peers_311.connect()
    for number in range(2):
        await leave_subscribed(peers_311, f"{name}-{number}", f"{name}/{number}")
    for number in range(2):
        await publisher.publish(f"{name}/{number}", b"%d" % number)
    for number in (1, 0):
        peer = await peers_311.connect(f"{name}-{number}", clean=False)
        assert peer.connack.session_present
        assert payloads(await peer.fence()) == [b"%d" % number]
    assert not (await peers_311.connect(f"{name}-2", clean=False)).connack.session_present


@v311("3.1.4-2")
async def test_v311_mqtt_3_1_4_2_older_connection_of_a_client_id_is_closed(
    peers_311: Peers, name: str
) -> None:
    old = await peers_311.connect(name, clean=False)
    await old.subscribe(name)
    new = await peers_311.connect(name, clean=False)
    assert await old.last_words() == []
    assert new.connack.session_present
    await new.publish(name, b"x", 0)
    assert payloads(await new.fence()) == [b"x"]


# State


@v311("4.1.0-2")
async def test_v311_mqtt_4_1_0_2_session_lasts_as_long_as_its_connection(
    forgetful: RunningServer, peers_311: Peers, name: str
) -> None:
    port = forgetful.port
    clean = await peers_311.connect(port=port)
    back = await peers_311.connect(name, clean=False, port=port)
    await back.leave()
    back = await peers_311.connect(name, clean=False, port=port)
    for peer in (clean, back):
        await peer.subscribe(name, qos=1)
    is_remembered = True
    async with asyncio.timeout(TIMEOUT_S):
        while is_remembered:  # until an absent session, younger than these, has been forgotten
            absent = await peers_311.connect(f"{name}-absent", clean=False, port=port)
            await absent.leave()
            await asyncio.sleep(0.2)
            absent = await peers_311.connect(f"{name}-absent", clean=False, port=port)
            is_remembered = absent.connack.session_present
            await absent.leave()
    await (await peers_311.connect(port=port)).publish(name, b"x")
    for peer in (clean, back):
        assert payloads(await peer.fence()) == [b"x"]


@v311("4.1.0-1", "4.3.3-2")
async def test_v311_mqtt_4_1_0_1_server_remembers_which_qos_2_messages_it_has_taken(
    peers_311: Peers, name: str
) -> None:
    watcher = await peers_311.connect()
    await watcher.subscribe(name)
    peer = await peers_311.connect(name, clean=False)
    await peer.send(Publish(name, b"x", 2, packet_id=5))
    assert await peer.receive(PubRec) == PubRec(5)
    await peer.cut()
    peer = await peers_311.connect(name, clean=False)
    await peer.send(Publish(name, b"x", 2, dup=True, packet_id=5))
    assert await peer.receive(PubRec) == PubRec(5)
    await peer.send(PubRel(5))
    assert await peer.receive(PubComp) == PubComp(5)
    assert payloads(await watcher.fence()) == [b"x"]


@v311("4.4.0-1", "3.3.1-1", "2.3.1-4", "4.6.0-6")
async def test_v311_mqtt_4_4_0_1_what_was_not_acknowledged_is_sent_again_as_it_was(
    peers_311: Peers, name: str
) -> None:
    peer, publisher = await peers_311.connect(name, clean=False), await peers_311.connect()
    await peer.subscribe(name, qos=2)
    for number in range(6):
        await publisher.publish(name, b"%d" % number, 1 + number % 2)
    sent = [await peer.receive(Publish) for _ in range(6)]
    await peer.send(PubAck(sent[0].packet_id), PubRec(sent[1].packet_id))
    assert await peer.fence() == [PubRel(sent[1].packet_id)]
    await peer.cut()
    peer = await peers_311.connect(name, clean=False)
    again: list[Packet] = await peer.fence()
    assert again == [
        PubRel(sent[1].packet_id),
        *(Publish(name, old.payload, old.qos, dup=True, packet_id=old.packet_id) for old in sent[2:]),
    ]
    assert await peer.fence() == []


@v311("4.4.0-1")
async def test_v311_mqtt_4_4_0_1_what_was_acknowledged_is_not_sent_again(peers_311: Peers, name: str) -> None:
    peer, publisher = await peers_311.connect(name, clean=False), await peers_311.connect()
    await peer.subscribe(name, qos=2)
    for qos in range(3):
        await publisher.publish(name, b"x", qos)
        await accept(peer, await peer.receive(Publish))
    assert await peer.fence() == []
    await peer.cut()
    peer = await peers_311.connect(name, clean=False)
    assert await peer.fence() == []


@v311("4.5.0-1")
async def test_v311_mqtt_4_5_0_1_message_is_for_every_session_that_subscribed(
    peers_311: Peers, name: str
) -> None:
    await leave_subscribed(peers_311, f"{name}-away", f"{name}/+")
    clean, kept = await peers_311.connect(), await peers_311.connect(f"{name}-kept", clean=False)
    for peer, filter in ((clean, f"{name}/#"), (kept, f"{name}/a")):
        await peer.subscribe(filter, qos=1)
    publisher = await peers_311.connect()
    await publisher.publish(f"{name}/a", b"x")
    away = await peers_311.connect(f"{name}-away", clean=False)
    for peer in (clean, kept, away):
        assert payloads(await peer.fence()) == [b"x"]
