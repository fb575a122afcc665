"""What outlives a connection: take-over, coming back, what is sent again, and when it is all forgotten."""

import asyncio
from itertools import islice
from typing import Any

import pytest

from penstock.wire.mqtt import (
    Connect,
    Disconnect,
    PacketProperties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    Subscribe,
    Version,
)
from penstock.wire.mqtt.packets import Request
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, both_versions, payloads
from tests.support.servers import RunningServer, StartServer
from tests.support.waiting import until

TAKEOVERS = 200
KEEPING: dict[str, Any] = {"clean": False, "expiry": FOR_EVER}
"""How a client of either version asks for a session that lasts."""


@pytest.fixture(scope="module")
def forgetful(start_server: StartServer) -> RunningServer:
    """A server that keeps absent sessions for a second, of which it is told little."""
    return start_server(
        {
            "sessions": {"max_expiry_s": 1, "owed_messages": 5},
            "reaper_interval_ms": 100,
            "mqtt": {"max_inflight": 3},
        }
    )


async def away_with(peers: Peers, name: str, version: Version, filter: str, qos: int = 2) -> None:
    """Leave a session behind that wants a filter."""
    peer = await peers.connect(name, version, **KEEPING)
    await peer.subscribe(filter, qos=qos)
    await peer.leave()


# Take-over


@both_versions
async def test_older_connection_of_a_client_id_is_closed(peers: Peers, name: str, version: Version) -> None:
    old = await peers.connect(name, version)
    new = await peers.connect(name, version)
    words = [Disconnect(ReasonCode.SESSION_TAKEN_OVER)] if version is Version.V5 else []
    assert await old.last_words() == words  # MQTT-3.1.4-3, 3.1.4-2 of 3.1.1
    assert await new.fence() == []


async def test_take_over_speaks_the_version_of_each_connection(peers: Peers, name: str) -> None:
    first = await peers.connect(name, Version.V5, **KEEPING)
    await first.subscribe(name, qos=1, properties=PacketProperties(subscription_ids=(7,)))
    second = await peers.connect(name, Version.V311, **KEEPING)
    assert await first.last_words() == [Disconnect(ReasonCode.SESSION_TAKEN_OVER)]
    assert second.connack.session_present
    publisher = await peers.connect()
    await publisher.publish(name, b"plain")
    assert (await second.receive(Publish)) == Publish(name, b"plain", 1, packet_id=1)
    third = await peers.connect(name, Version.V5, **KEEPING)
    assert await second.last_words() == []
    again = await third.receive(Publish)
    assert again == Publish(name, b"plain", 1, False, True, 1, PacketProperties(subscription_ids=(7,)))


@both_versions
async def test_two_hundred_take_overs_leave_one_connection_and_one_session(
    server: RunningServer, peers: Peers, name: str, version: Version
) -> None:
    watcher = await peers.connect()
    before = server.open_files
    last = await peers.connect(name, version, **KEEPING)
    for _ in range(TAKEOVERS):
        old, last = last, await peers.connect(name, version, **KEEPING)
        await last.subscribe(name, qos=1)
    await old.last_words()
    assert last.connack.session_present
    await watcher.publish(name, b"once")
    assert payloads(await last.fence()) == [b"once"]
    await has_open(server, before + 1)
    await last.leave()
    await has_open(server, before)


async def has_open(server: RunningServer, files: int) -> None:
    """Wait until it has no more files open: it closes one a little after its client has noticed."""
    await until(lambda: server.open_files <= files, "files are still open")


async def test_simultaneous_connects_of_one_client_id_leave_one(peers: Peers, name: str) -> None:
    streams = [await peers.open() for _ in range(50)]
    for peer in streams:
        peer.stream.write(Connect(name, Version.V5), Subscribe(1, (Request(name),)))
    publisher = await peers.connect()
    ends = [asyncio.create_task(peer.last_words()) for peer in streams]
    for ended in islice(asyncio.as_completed(ends), len(streams) - 1):
        await ended
    assert await publisher.publish(name, b"x") == 0
    [survivor] = [end for end in ends if not end.done()]
    survivor.cancel()


# Coming back


@both_versions
async def test_session_is_present_only_if_it_was_kept_and_is_wanted(
    peers: Peers, name: str, version: Version
) -> None:
    peer = await peers.connect(name, version, **KEEPING)
    assert not peer.connack.session_present  # there was none
    await peer.leave()
    peer = await peers.connect(name, version, **KEEPING)
    assert peer.connack.session_present
    await peer.leave()
    peer = await peers.connect(name, version, clean=True)
    assert not peer.connack.session_present  # it was not wanted
    await peer.leave()
    peer = await peers.connect(name, version, **KEEPING)
    assert not peer.connack.session_present  # the clean one was not kept
    await peer.leave()


async def test_session_without_expiry_ends_with_its_connection(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, clean=False)
    await peer.subscribe(name)
    await peer.leave()
    assert not (await peers.connect(name, clean=False)).connack.session_present


@both_versions
async def test_clean_start_forgets_subscriptions_and_messages(
    peers: Peers, name: str, version: Version
) -> None:
    await away_with(peers, name, version, name)
    publisher = await peers.connect()
    await publisher.publish(name, b"missed")
    peer = await peers.connect(name, version, clean=True)
    await publisher.publish(name, b"missed too")
    assert await peer.fence() == []


@both_versions
async def test_absent_session_is_owed_what_it_wanted_above_qos_0(
    peers: Peers, name: str, version: Version
) -> None:
    await away_with(peers, name, version, f"{name}/#", qos=1)
    publisher = await peers.connect()
    for qos, payload in ((1, b"one"), (0, b"nought"), (2, b"two")):
        await publisher.publish(f"{name}/{qos}", payload, qos)
    peer = await peers.connect(name, version, **KEEPING)
    owed = await peer.receive_all(2)
    assert [(message.payload, message.qos, message.dup) for message in owed] == [
        (b"one", 1, False),
        (b"two", 1, False),
    ]
    assert await peer.fence() == []


@both_versions
async def test_in_flight_comes_first_then_owed_then_live(peers: Peers, name: str, version: Version) -> None:
    peer = await peers.connect(name, version, **KEEPING)
    await peer.subscribe(name, qos=2)
    publisher = await peers.connect()
    for number in range(6):
        await publisher.publish(name, b"in flight %d" % number, 1 + number % 2)
    sent = [await peer.receive(Publish) for _ in range(6)]
    await peer.send(PubAck(sent[0].packet_id), PubRec(sent[1].packet_id))
    assert await peer.fence() == [PubRel(sent[1].packet_id)]
    await peer.leave()
    for number in range(3):
        await publisher.publish(name, b"owed %d" % number)
    peer = await peers.connect(name, version, **KEEPING)
    await publisher.publish(name, b"live")
    assert await peer.receive(PubRel) == PubRel(sent[1].packet_id)
    again = [await peer.receive(Publish) for _ in range(4)]
    assert [(message.payload, message.packet_id, message.qos) for message in again] == [
        (message.payload, message.packet_id, message.qos) for message in sent[2:]
    ]
    assert all(message.dup for message in again)  # MQTT-3.3.1-1
    rest = [await peer.receive(Publish) for _ in range(4)]
    assert payloads(rest) == [b"owed 0", b"owed 1", b"owed 2", b"live"]
    assert not any(message.dup for message in rest)
    assert not {message.packet_id for message in rest} & {message.packet_id for message in sent[1:]}


async def test_nothing_is_sent_again_while_connected(peers: Peers, name: str) -> None:
    readers = [await peers.connect(f"{name}-{version}", version, **KEEPING) for version in Version]
    for peer in readers:
        await peer.subscribe(name, qos=2)
    publisher = await peers.connect()
    await publisher.publish(name, b"x", 2)
    ids = [(await peer.receive(Publish)).packet_id for peer in readers]
    await asyncio.sleep(1.2)
    for peer, packet_id in zip(readers, ids, strict=True):
        assert await peer.fence() == []  # MQTT-4.4.0-1
        await peer.send(PubRec(packet_id))
        await peer.receive(PubRel)
        await peer.send(PubComp(packet_id))
        assert await peer.fence() == []


async def test_what_is_sent_again_fits_the_window_of_the_new_connection(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, **KEEPING)
    await peer.subscribe(name, qos=1)
    publisher = await peers.connect()
    for number in range(5):
        await publisher.publish(name, b"%d" % number)
    sent = [await peer.receive(Publish) for _ in range(5)]
    await peer.leave()
    await publisher.publish(name, b"owed")
    narrow = PacketProperties(session_expiry=FOR_EVER, receive_maximum=2)
    peer = await peers.connect(name, clean=False, properties=narrow)
    await publisher.publish(name, b"live")
    got: list[Publish] = []
    while len(got) < 7:
        window = await peer.fence()
        assert 0 < len(window) <= 2  # MQTT-3.3.4-9
        for message in window:
            assert isinstance(message, Publish)
            got.append(message)
            await peer.send(PubAck(message.packet_id))
    assert payloads(got) == [b"0", b"1", b"2", b"3", b"4", b"owed", b"live"]
    assert [message.packet_id for message in got[:5]] == [message.packet_id for message in sent]
    assert [message.dup for message in got] == [True] * 5 + [False] * 2


async def test_much_that_was_on_its_way_is_sent_again_in_order(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, **KEEPING)
    await peer.subscribe(name, qos=1)
    publisher = await peers.connect()
    bodies = [bytes((number,)) * 300_000 for number in range(12)]
    for body in bodies:
        await publisher.publish(name, body)
    assert payloads([await peer.receive(Publish) for _ in bodies]) == bodies
    await peer.leave()
    peer = await peers.connect(name, **KEEPING)
    await publisher.publish(name, b"live")
    again = await peer.receive_all(len(bodies) + 1)
    assert payloads(again) == [*bodies, b"live"]
    assert await peer.fence() == []
    await peer.leave()
    peer = await peers.connect(name, **KEEPING)
    assert await peer.fence() == []


async def test_what_the_client_no_longer_takes_is_given_up(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, **KEEPING)
    await peer.subscribe(name, qos=1)
    publisher = await peers.connect()
    await publisher.publish(name, bytes(500))
    await publisher.publish(name, b"small")
    assert len(await peer.fence()) == 2
    await peer.leave()
    small = PacketProperties(session_expiry=FOR_EVER, maximum_packet_size=200)
    peer = await peers.connect(name, clean=False, properties=small)
    again = await peer.fence()
    assert payloads(again) == [b"small"]  # MQTT-3.1.2-25
    await peer.leave()
    peer = await peers.connect(name, **KEEPING)
    assert payloads(await peer.fence()) == [b"small"]


@both_versions
async def test_packet_ids_received_at_qos_2_are_remembered(peers: Peers, name: str, version: Version) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name, qos=2)
    peer = await peers.connect(name, version, **KEEPING)
    message = Publish(name, b"once", 2, packet_id=9)
    await peer.send(message)
    await peer.receive(PubRec)
    await peer.leave()
    peer = await peers.connect(name, version, **KEEPING)
    await peer.send(Publish(name, b"once", 2, dup=True, packet_id=9))
    assert await peer.receive(PubRec) == PubRec(9)
    await peer.send(PubRel(9))
    assert await peer.receive(PubComp) == PubComp(9)
    assert payloads(await watcher.fence()) == [b"once"]
    await peer.send(message)  # the number is free: this is another message
    await peer.receive(PubRec)
    assert payloads(await watcher.fence()) == [b"once"]


async def test_unreleased_ids_of_an_earlier_connection_do_not_fill_the_window(
    peers: Peers, name: str, start_server: StartServer
) -> None:
    port = start_server({"mqtt": {"receive_maximum": 3}}).port
    peer = await peers.connect(name, **KEEPING, port=port)
    await peer.send(*(Publish(name, b"x", 2, packet_id=number) for number in (1, 2, 3)))
    assert [(await peer.receive(PubRec)).packet_id for _ in range(3)] == [1, 2, 3]
    await peer.leave()
    peer = await peers.connect(name, **KEEPING, port=port)
    await peer.send(*(Publish(name, b"x", 2, packet_id=number) for number in (4, 5, 6)))
    assert [(await peer.receive(PubRec)).packet_id for _ in range(3)] == [4, 5, 6]
    assert await peer.fence() == []


# Forgetting


async def test_session_ends_when_it_has_been_absent_too_long(
    forgetful: RunningServer, peers: Peers, name: str
) -> None:
    async def come() -> list[Peer]:
        return [
            await peers.connect(f"{name}-{version}", version, **KEEPING, port=forgetful.port)
            for version in Version
        ]

    for peer in await come():
        await peer.leave()
    there = await come()
    assert all(peer.connack.session_present for peer in there)
    await asyncio.sleep(1.3)
    for peer in there:
        assert await peer.fence() == []  # the time of who is connected does not run
        await peer.leave()
    await asyncio.sleep(1.3)
    assert not any(peer.connack.session_present for peer in await come())


async def test_expiry_given_with_the_goodbye_counts(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, **KEEPING)
    await peer.leave(Disconnect(properties=PacketProperties(session_expiry=0)))
    peer = await peers.connect(name, expiry=1, clean=False)
    assert not peer.connack.session_present
    await peer.leave(Disconnect(properties=PacketProperties(session_expiry=FOR_EVER)))
    await asyncio.sleep(2.5)
    peer = await peers.connect(name, clean=False)
    assert peer.connack.session_present
    await peer.leave()


async def test_expiry_of_a_session_that_has_none_cannot_be_raised(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, clean=False)
    await peer.send(Disconnect(properties=PacketProperties(session_expiry=5)))
    assert await peer.last_words() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]
    assert not (await peers.connect(name, clean=False)).connack.session_present


async def test_more_than_the_limit_is_not_owed_and_the_oldest_stay(
    forgetful: RunningServer, peers: Peers, name: str
) -> None:
    peer = await peers.connect(name, **KEEPING, port=forgetful.port)
    await peer.subscribe(name, qos=1)
    await peer.leave()
    publisher = await peers.connect(port=forgetful.port)
    for number in range(8):
        await publisher.publish(name, b"%d" % number)
    peer = await peers.connect(name, **KEEPING, port=forgetful.port)
    got = [*await peer.receive_all(3), *await peer.receive_all(2)]
    assert payloads(got) == [b"0", b"1", b"2", b"3", b"4"]
    assert await peer.fence() == []


async def test_session_of_another_user_is_not_shown(peers: Peers, name: str) -> None:
    peer = await peers.connect(name, **KEEPING, user="alice", password=b"x")
    await peer.subscribe(name, qos=1)
    await peer.leave()
    peer = await peers.connect(name, **KEEPING, user="mallory", password=b"x")
    assert not peer.connack.session_present
    publisher = await peers.connect()
    await publisher.publish(name, b"for alice")
    assert await peer.fence() == []


async def test_unsubscribed_while_connected_stays_unsubscribed(peers: Peers, name: str) -> None:
    peer: Peer = await peers.connect(name, **KEEPING)
    await peer.subscribe(name, f"{name}/#", qos=1)
    assert await peer.unsubscribe(f"{name}/#") == (0,)
    await peer.leave()
    publisher = await peers.connect()
    await publisher.publish(f"{name}/deep", b"not wanted")
    await publisher.publish(name, b"wanted")
    peer = await peers.connect(name, **KEEPING)
    assert payloads(await peer.fence()) == [b"wanted"]
