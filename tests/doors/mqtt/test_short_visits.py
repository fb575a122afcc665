"""Clients that send everything at once and close: what arrived before the close is processed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.app import Server
from penstock.core.ports.log import Settled
from penstock.doors.mqtt.door import MqttDoor
from penstock.wire.mqtt import Connect, Disconnect, Packet, Publish, Version, Will, encode_packet
from tests.doors.mqtt.peers import Peer, Peers, payloads
from tests.doors.serving import Start, port_of
from tests.support.waiting import until


@pytest.fixture
async def server(start: Start, tmp_path: Path) -> Server:
    return await start(data_dir=str(tmp_path / "data"))


@pytest.fixture
async def reader(server: Server) -> AsyncIterator[Peer]:
    peers = Peers(port_of(server, "mqtt"))
    peer = await peers.connect()
    await peer.subscribe("a/#", qos=1)
    yield peer
    await peers.close()


async def visit(server: Server, monkeypatch: pytest.MonkeyPatch, *packets: Packet) -> None:
    """Send packets in one segment, and close; the commit of the session is made after that."""
    (door,) = (each for each in server.doors if isinstance(each, MqttDoor))
    waiting: list[Settled] = []

    monkeypatch.setattr(server.broker._node.recorder, "when_stored", waiting.append)
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(server, "mqtt"))
    writer.write(b"".join(encode_packet(packet, Version.V311) for packet in packets))
    await until(lambda: waiting, "CONNECT was not read")
    (connection,) = (each for each in door.connections if each.is_stranger)
    connection._transport.abort()  # as a transport does that notices a close even while it is paused
    await until(lambda: connection._is_lost, "the close was not noticed")
    writer.close()
    monkeypatch.undo()
    waiting[0](None)
    await until(lambda: server.broker.sessions["meter"].connection is None, "the session stayed connected")
    assert len(door.connections) == 1


async def test_message_between_connect_and_disconnect_is_published(
    server: Server, reader: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    greeting = Connect("meter", Version.V311, clean_start=False, will=Will("a/will", b"will"))
    await visit(server, monkeypatch, greeting, Publish("a/b", b"1", 1, packet_id=1), Disconnect())
    assert payloads(await reader.receive_all(1)) == [b"1"]
    await visit(server, monkeypatch, greeting, Publish("a/b", b"2", 1, packet_id=1), Disconnect())
    assert payloads(await reader.receive_all(1)) == [b"2"]
    assert server.broker.sessions["meter"].will is None


async def test_client_that_only_closes_has_its_message_published_and_its_will_after_it(
    server: Server, reader: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    greeting = Connect("meter", Version.V311, clean_start=False, will=Will("a/will", b"will"))
    await visit(server, monkeypatch, greeting, Publish("a/b", b"1", 1, packet_id=1))
    assert payloads(await reader.receive_all(2)) == [b"1", b"will"]


async def test_queued_messages_are_not_spent_on_a_client_that_has_left(
    server: Server, reader: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = Peers(port_of(server, "mqtt"))
    meter = await peers.connect("meter", clean=False, version=Version.V311)
    await meter.subscribe("queue", qos=1)
    await meter.leave(Disconnect())
    await until(lambda: server.broker.sessions["meter"].connection is None, "the session stayed connected")
    await reader.publish("queue", b"kept", qos=1)
    greeting = Connect("meter", Version.V311, clean_start=False)
    await visit(server, monkeypatch, greeting, Publish("a/b", b"1", 1, packet_id=1))
    assert payloads(await reader.receive_all(1)) == [b"1"]
    meter = await peers.connect("meter", clean=False, version=Version.V311)
    message = await meter.receive(Publish)
    assert (message.payload, message.dup) == (b"kept", False)
    await peers.close()
