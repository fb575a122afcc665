"""A disk that refuses to write or to sync: nothing is acknowledged meanwhile, and then all goes on."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from penstock.client import ConnectionLost
from penstock.wire.mqtt import ConnAck, Connect, PubAck, Publish, ReasonCode, ReturnCode, Version
from tests.doors.mqtt.peers import Peers, both_versions
from tests.faults.durable.crashing import LOOK_EVERY_S, End, Load
from tests.faults.durable.homes import Home, MakeHome
from tests.faults.durable.stracing import failing
from tests.support.waiting import until

PATIENCE_S = 20.0
JOURNALS = 300

SYNC = "fsync,fdatasync"
WRITE = "write,writev,pwrite64"


def journals(home: Home) -> list[Path]:
    """The files that commits are written to, now and when the store was opened anew a few times."""
    return [home.data / "rocksdb" / f"{number:06d}.log" for number in range(1, JOURNALS)]


async def is_taken(peers: Peers, home: Home, version: Version) -> bool:
    """Whether a message of a newcomer is acknowledged; an MQTT 5 client has to be told why not."""
    peer = await peers.open(version, home.port)
    await peer.send(Connect("", version))
    connack = await peer.receive(ConnAck)
    if connack.reason:
        assert connack.reason in {ReasonCode.QUOTA_EXCEEDED, ReturnCode.SERVER_UNAVAILABLE}
        return False
    await peer.send(Publish("probe", b"?", 1, packet_id=1))
    try:
        answer = await peer.receive(PubAck)
    except ConnectionLost:
        assert version is Version.V311
        return False
    await peer.leave()
    assert answer.reason < 0x80 or (version, answer.reason) == (Version.V5, ReasonCode.QUOTA_EXCEEDED)
    return answer.reason < 0x80


async def still_serves(peers: Peers, home: Home) -> None:
    """What asks for no acknowledgement goes on."""
    subscriber = await peers.connect(port=home.port)
    await subscriber.subscribe("news")
    publisher = await peers.connect("", Version.V311, port=home.port)
    await publisher.publish("news", b"as always", qos=0)
    assert (await subscriber.receive(Publish)).payload == b"as always"
    for peer in (subscriber, publisher):
        await peer.leave()


def fail_with(peers: Peers, version: Version, calls: str, error: str) -> End:
    """Let the disk fail until clients are told, and check that the server goes on."""

    async def end(home: Home) -> None:
        pid = home.server.process.pid
        paths = journals(home) if calls == WRITE else []
        async with failing(pid, home.folder, calls, error, paths) as fault, asyncio.timeout(PATIENCE_S):

            async def is_refused() -> bool:
                return not await is_taken(peers, home, version)

            await until(is_refused, "messages are still accepted", PATIENCE_S, LOOK_EVERY_S)
            await still_serves(peers, home)
        assert fault.injections
        assert home.is_running

    return end


@both_versions
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("calls", [SYNC, WRITE], ids=["sync", "write"])
async def test_failing_disk_loses_nothing_and_heals(
    make_home: MakeHome, peers: Peers, dice: Random, version: Version, qos: int, error: str, calls: str
) -> None:
    """MQTT 5 clients are refused, others are sent away; nobody has to restart the server."""
    home = make_home()
    await home.open()
    window = 1 if version is Version.V5 else 20
    load = Load(home, version, qos, window=window, insists=True)
    await load.run([fail_with(peers, version, calls, error), Home.killed_and_back], dice, most=100)
    assert await is_taken(peers, home, version)
