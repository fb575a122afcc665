"""A file system of 8 MB that fills up: no acknowledgement for what is not stored, and it goes on."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import ConnectionLost
from penstock.wire.mqtt import Disconnect, PubAck, Publish, ReasonCode, Version
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, both_versions
from tests.faults.durable.homes import Home, MakeHome
from tests.faults.durable.load import Subscriber, body_of
from tests.support.waiting import until

DISK_BYTES = 8 << 20
BALLAST_BYTES = 3 << 20
BODY_BYTES = 20_000
MOST = 1_000
"""More messages than fit that disk by far."""
PATIENCE_S = 20.0
NAME = "filler"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is soon full, with something on it that can be taken away."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "penstock-tests", str(folder)]
    mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Filler:
    """Publishes one large message after the other, and comes back when it was sent away."""

    def __init__(self, home: Home, peers: Peers, version: Version) -> None:
        self.acknowledged: set[int] = set()
        self._home = home
        self._peers = peers
        self._version = version
        self._peer: Peer | None = None
        self._number = -1

    async def publish(self) -> bool:
        """Whether the next message was taken; the answer to an MQTT 5 client must say why not."""
        if self._peer is None:
            self._peer = await self._peers.connect("", self._version, port=self._home.port)
        peer, packet_id = self._peer, self._peer.next_id()
        self._number += 1
        body = body_of(NAME, self._number, BODY_BYTES)
        await peer.send(Publish(f"load/{NAME}/0", body, 1, packet_id=packet_id))
        try:
            answer = await peer.take()
        except ConnectionLost:
            assert self._version is Version.V311
            self._peer = None
            return False
        assert isinstance(answer, PubAck), answer
        assert answer.packet_id == packet_id
        if answer.reason < 0x80:
            self.acknowledged.add(self._number)
            return True
        assert (self._version, answer.reason) == (Version.V5, ReasonCode.QUOTA_EXCEEDED)
        return False

    def come_back(self) -> None:
        """Use another connection from now on."""
        self._peer = None

    async def fill(self) -> None:
        """Publish until the server does not take any more, and for some time after that."""
        for _ in range(MOST):
            if not await self.publish():
                break
        assert len(self.acknowledged) < MOST
        assert [await self.publish() for _ in range(5)] == [False] * 5

    async def go_on(self) -> None:
        """Publish until the server takes it again."""
        await until(self.publish, "no message was accepted", timeout_s=PATIENCE_S, every_s=0.05)
        assert [await self.publish() for _ in range(10)] == [True] * 10


async def still_serves(peers: Peers, home: Home) -> None:
    """What need not be stored goes its way, for those who were there and for newcomers."""
    subscriber = await peers.connect(port=home.port)
    await subscriber.subscribe("load/#")
    publisher = await peers.connect("", Version.V311, port=home.port)
    await publisher.publish("load/x", b"as always", qos=0)
    assert (await subscriber.receive(Publish)).payload == b"as always"
    assert home.is_running


async def prepared(small_disk: Path, make_home: MakeHome, version: Version) -> tuple[Home, Path]:
    """A server on a small disk, someone absent who wants everything, and what takes room."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    home = make_home(data=small_disk / "data")
    await home.open()
    absent = Subscriber(home, "absent", version, 1)
    await absent.subscribe()
    await absent.leave()
    return home, ballast


async def check_arrivals(home: Home, peers: Peers, version: Version, acknowledged: set[int]) -> None:
    """Everything acknowledged comes to whom it was owed, in its order; the rest may."""
    absent = await peers.connect("absent", version, clean=False, expiry=FOR_EVER, port=home.port)
    assert absent.connack.session_present
    numbers: list[int] = []
    while not acknowledged <= set(numbers):
        message = await absent.receive(Publish)
        if message.topic != f"load/{NAME}/0":
            continue
        numbers.append(int(message.payload.split(b":")[1]))
        assert message.payload == body_of(NAME, numbers[-1], BODY_BYTES)
        await absent.send(PubAck(message.packet_id))
    assert numbers == sorted(numbers)
    await absent.leave(Disconnect())


@both_versions
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
async def test_full_disk_is_told_and_heals_without_a_restart(
    small_disk: Path, make_home: MakeHome, peers: Peers, version: Version, is_killed: bool
) -> None:
    home, ballast = await prepared(small_disk, make_home, version)
    filler = Filler(home, peers, version)
    await filler.fill()
    await still_serves(peers, home)
    assert re.search(r"^\S+ (warning|error) ", home.logged, re.MULTILINE), home.logged
    ballast.unlink()
    await filler.go_on()
    await peers.close()
    await (home.killed_and_back() if is_killed else home.stopped_and_back())
    await check_arrivals(home, peers, version, filler.acknowledged)


@both_versions
async def test_server_starts_on_a_full_disk_and_heals_too(
    small_disk: Path, make_home: MakeHome, peers: Peers, version: Version
) -> None:
    home, ballast = await prepared(small_disk, make_home, version)
    filler = Filler(home, peers, version)
    await filler.fill()
    await home.killed_and_back()
    filler.come_back()
    await filler.fill()  # a start may have tidied up a little
    await still_serves(peers, home)
    ballast.unlink()
    await filler.go_on()
    await check_arrivals(home, peers, version, filler.acknowledged)
