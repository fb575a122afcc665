"""Everybody comes back at once, as after a network failure: all are let in, and nobody has lost a thing."""

import asyncio
import resource

import pytest

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    PacketProperties,
    PubAck,
    Publish,
    Request,
    SubAck,
    Subscribe,
    Version,
)
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, both_versions
from tests.faults.watching import Costs, Witness
from tests.support.servers import StartServer

FILES_BESIDE = 1_000
KIB = 1024


async def come(peers: Peers, port: int, number: int, version: Version) -> Peer:
    """Connect to a session that stays; every second one comes with each version."""
    keeps = PacketProperties(session_expiry=FOR_EVER)
    peer = await peers.open(version, port)
    await peer.send(Connect(f"client {number}", version, False, 0, None, None, None, keeps))
    peer.connack = await peer.receive(ConnAck, 60)
    assert peer.connack.reason == 0
    return peer


async def come_first(peers: Peers, port: int, number: int, version: Version) -> Peer:
    peer = await come(peers, port, number, version)
    await peer.send(Subscribe(1, (Request(f"to/{number}", 1),)))
    assert (await peer.receive(SubAck, 60)).reasons == (1,)
    return peer


async def come_back(peers: Peers, port: int, number: int, version: Version) -> Peer:
    """The session is there, with what came meanwhile and nothing else."""
    peer = await come(peers, port, number, version)
    assert peer.connack.session_present
    message = await peer.receive(Publish, 60)
    assert (message.topic, message.payload) == (f"to/{number}", b"meanwhile")
    await peer.send(PubAck(message.packet_id))
    return peer


@both_versions
async def test_all_come_back_at_once_to_their_sessions(
    start_server: StartServer, peers: Peers, scale: int, version: Version
) -> None:
    """Ten thousand in a soak."""
    count = 500 if scale == 1 else 10_000
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < count + FILES_BESIDE:
        pytest.skip("too few open files are allowed here")
    server = start_server()
    async with Witness(server):
        costs = Costs(server)
        first = await asyncio.gather(*(come_first(peers, server.port, n, version) for n in range(count)))
        for peer in first:
            peer.stream.abort()
        await costs.are_back()
        publisher = await peers.connect(port=server.port)
        for number in range(count):
            assert await publisher.publish(f"to/{number}", b"meanwhile") == 0
        again = await asyncio.gather(*(come_back(peers, server.port, n, version) for n in range(count)))
        for number in range(0, count, 7):  # and what comes now arrives as before
            await publisher.publish(f"to/{number}", b"live")
            assert (await again[number].receive(Publish)).payload == b"live"
        if scale > 1:
            assert costs.more_bytes / count < 15 * KIB
        for peer in again:
            peer.stream.abort()
        await publisher.leave()
        await costs.are_back()
