"""Packets of 256 MB that are announced: refused from their first bytes, whoever announces how many."""

import pytest

from penstock.wire.mqtt import ConnAck, Connect, Disconnect, ReasonCode, Version, encode_packet
from tests.doors.mqtt.peers import Peers, both_versions
from tests.faults.watching import MIB, Costs, Witness
from tests.support.servers import RunningServer, StartServer

LARGEST = b"\xff\xff\xff\x7f"
"""268,435,455 bytes, the largest length that MQTT can announce."""
CONNECTIONS = 50
START = bytes(64 * 1024)


@pytest.fixture(scope="module")
def victim(start_server: StartServer) -> RunningServer:
    return start_server()


@both_versions
@pytest.mark.parametrize("first", [0x30, 0x34, 0x82, 0x40])
async def test_announcing_a_huge_packet_costs_nothing(
    victim: RunningServer, peers: Peers, version: Version, first: int
) -> None:
    async with Witness(victim):
        costs = Costs(victim)
        clients = [await peers.connect("", version, port=victim.port) for _ in range(CONNECTIONS)]
        for client in clients:
            client.stream.write_bytes(bytes((first,)) + LARGEST + b"\x00\x01t" + START)
        for client in clients:
            words = [word.reason for word in await client.last_words() if isinstance(word, Disconnect)]
            assert words == ([ReasonCode.PACKET_TOO_LARGE] if version is Version.V5 else [])
            await client.stream.close()
        await costs.are_back()
        assert costs.more_bytes < 20 * MIB


@both_versions
async def test_announcing_a_huge_hello_costs_nothing(
    victim: RunningServer, peers: Peers, version: Version
) -> None:
    async with Witness(victim):
        costs = Costs(victim)
        clients = [await peers.open(version, victim.port) for _ in range(CONNECTIONS)]
        hello = encode_packet(Connect("c" * 50, version), version)
        for client in clients:
            client.stream.write_bytes(hello[:1] + LARGEST + hello[2:] + START)
        for client in clients:
            words = [word.reason for word in await client.last_words() if isinstance(word, ConnAck)]
            assert words == ([ReasonCode.PACKET_TOO_LARGE] if version is Version.V5 else [])
            await client.stream.close()
        await costs.are_back()
        assert costs.more_bytes < 20 * MIB
