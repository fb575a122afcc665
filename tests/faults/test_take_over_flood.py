"""Many connections that fight for one client id: one has it in the end, and nothing is left behind."""

import asyncio

from penstock.client import ConnectionLost
from penstock.wire.mqtt import Connect, PingReq, PingResp, Request, Subscribe, Version
from tests.doors.mqtt.peers import Peer, Peers
from tests.faults.watching import MIB, Costs, Witness
from tests.support.servers import RunningServer, StartServer

FIGHTERS = 10
NAME = "everybody"


async def fight(peers: Peers, port: int, rounds: int, version: Version) -> Peer:
    """Come again and again with the same client id; answer the last of these connections."""
    for _ in range(rounds):
        peer = await peers.open(version, port)
        peer.stream.write(Connect(NAME, version, False), Subscribe(1, (Request(NAME, 1),)), PingReq())
        try:
            while not isinstance(await peer.take(), PingResp):
                pass
        except ConnectionLost:
            pass  # another one has it already
    return peer


async def is_alive(peer: Peer) -> bool:
    try:
        await peer.fence()
    except ConnectionLost:
        return False
    return True


async def test_fight_for_one_client_id_leaves_one_connection_and_one_session(
    start_server: StartServer, peers: Peers, scale: int
) -> None:
    server: RunningServer = start_server()
    async with Witness(server):
        costs = Costs(server)
        fights = [
            fight(peers, server.port, 20 * scale, list(Version)[number % 2]) for number in range(FIGHTERS)
        ]
        last = await asyncio.gather(*fights)
        await costs.are_back(1)
        alive = [peer for peer in last if await is_alive(peer)]
        assert len(alive) == 1
        publisher = await peers.connect(port=server.port)
        await publisher.publish(NAME, b"once")
        assert [packet.payload for packet in await alive[0].fence()] == [b"once"]  # type: ignore[attr-defined]
        await publisher.leave()
        await alive[0].leave()
        await costs.are_back()
    assert costs.more_bytes < 20 * MIB
