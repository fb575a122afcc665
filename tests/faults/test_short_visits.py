"""Clients that come and go by the thousand, by every way in: nothing of them stays behind."""

import asyncio

import pytest

from penstock.wire.mqtt import ConnAck, Connect, Disconnect, Version
from tests.access.streams import open_stream
from tests.doors.mqtt.peers import Peer
from tests.faults.watching import Costs, Witness
from tests.support.certificates import Authority
from tests.support.servers import RunningServer, StartServer

AT_ONCE = 50
KIB = 1024
LONG_S = 65_535
"""A keep alive of 18 hours, so that whatever waits for its end waits for longer than any test."""


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    certificate = Authority().issue(tmp_path_factory.mktemp("certificate"), "server").both
    ports = {"tls_port": 0, "websocket_port": 0, "websocket_tls_port": 0, "max_keep_alive_s": 0}
    return start_server({"mqtt": ports, "tls": {"certificate_file": certificate}})


async def visit(server: RunningServer, scheme: str, version: Version, number: int) -> None:
    """Come, and go in one of three ways."""
    peer = Peer(await open_stream(scheme, server.port_of(scheme), version))
    await peer.send(Connect("", version, keep_alive=LONG_S))
    assert (await peer.receive(ConnAck)).reason == 0
    if number % 3 == 0:
        peer.stream.abort()
    elif number % 3 == 1:
        await peer.leave(Disconnect())
    else:
        await peer.send_bytes(b"\x00\x00")
        await peer.last_words()
    await peer.stream.close()


async def visit_often(server: RunningServer, scheme: str, version: Version, count: int) -> None:
    for start in range(0, count, AT_ONCE):
        numbers = range(start, start + AT_ONCE)
        await asyncio.gather(*(visit(server, scheme, version, number) for number in numbers))


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize(
    ("scheme", "count", "limit_bytes"),
    [("mqtt", 2_000, KIB), ("ws", 1_000, KIB), ("mqtts", 200, 16 * KIB), ("wss", 200, 16 * KIB)],
)
async def test_visits_leave_no_memory_and_no_file_behind(
    server: RunningServer, scheme: str, count: int, limit_bytes: int, version: Version, scale: int
) -> None:
    """TLS itself remembers some of its sessions; a connection that stayed would cost more than that."""
    await visit_often(server, scheme, version, 2 * AT_ONCE)  # what is made once is made now
    async with Witness(server):
        costs = Costs(server)
        await visit_often(server, scheme, version, count * scale)
        await costs.are_back()
        assert costs.more_bytes < count * scale * limit_bytes
