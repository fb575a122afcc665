"""Who is silent for too long is gone; who pings is not."""

import asyncio
import time

import pytest

from penstock.wire.mqtt import Disconnect, PingReq, PingResp, Publish, ReasonCode, Version, Will
from tests.doors.mqtt.peers import Peers, both_versions
from tests.support.servers import RunningServer, StartServer


@pytest.fixture(scope="module")
def strict(start_server: StartServer) -> RunningServer:
    """A server that grants a second of silence to those who ask for more, or for none at all."""
    return start_server({"mqtt": {"max_keep_alive_s": 1}})


@both_versions
async def test_every_ping_is_answered(peers: Peers, version: Version) -> None:
    peer = await peers.connect("", version)
    await peer.send(*[PingReq()] * 100)
    assert [await peer.receive(PingResp) for _ in range(100)] == [PingResp()] * 100  # MQTT-3.12.4-1


async def test_silent_client_is_closed_and_its_will_published(peers: Peers, name: str) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name)
    began = time.monotonic()
    old, new = [
        await peers.connect("", version, keep_alive=1, will=Will(name, b"%d" % version))
        for version in Version
    ]
    assert await old.last_words() == []
    assert await new.last_words() == [Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)]  # MQTT-3.1.2-22
    assert time.monotonic() - began > 1.4
    assert {(await watcher.receive(Publish)).payload for _ in range(2)} == {b"4", b"5"}


async def test_client_that_sends_anything_stays(peers: Peers, name: str) -> None:
    pingers = [await peers.connect("", version, keep_alive=2) for version in Version]
    publishers = [await peers.connect("", version, keep_alive=2) for version in Version]
    idle = await peers.connect("", keep_alive=0)
    for _ in range(9):  # for longer than anybody may be silent
        await asyncio.sleep(0.4)
        for pinger, publisher in zip(pingers, publishers, strict=True):
            await pinger.send(PingReq())
            await pinger.receive(PingResp)
            await publisher.send(Publish(name, b"x"))
    for peer in (*publishers, idle):  # a keep alive of zero is none
        assert await peer.fence() == []


@pytest.mark.parametrize("asked", [0, 61, 65535])
async def test_any_keep_alive_is_granted_by_default(peers: Peers, asked: int) -> None:
    """Common clients keep their own keep alive whatever CONNACK says, and would be cut again and again."""
    peer = await peers.connect("", keep_alive=asked)
    assert peer.connack.properties.server_keep_alive is None


async def test_server_may_grant_less_than_was_asked_for(strict: RunningServer, peers: Peers) -> None:
    patient, endless = [await peers.connect("", keep_alive=asked, port=strict.port) for asked in (100, 0)]
    for peer in (patient, endless):
        assert peer.connack.properties.server_keep_alive == 1
        assert await peer.last_words() == [Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)]
