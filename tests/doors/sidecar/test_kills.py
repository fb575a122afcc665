"""Servers that are killed at any moment: what was answered is there, once, and in order."""

import asyncio
import random
from pathlib import Path

import grpc
import pytest

from penstock.wire.sidecar.messages import nexusd
from tests.doors.sidecar.calling import Stub
from tests.doors.sidecar.following import Follower
from tests.support.fork_server import ForkServer
from tests.support.servers import RunningServer, start
from tests.support.waiting import until

TOPICS = ("a", "b/1", "b/2")
KILLS = 4


class Site:
    """One data directory, and one server after another in it."""

    def __init__(self, folder: Path, forks: ForkServer | None) -> None:
        self._folder = folder
        self._forks = forks
        self.running = self._open()

    def _open(self) -> RunningServer:
        running = start(self._folder, {"data_dir": str(self._folder / "data")}, (), {}, self._forks)
        self.address = f"127.0.0.1:{running.port_of('grpc')}"
        return running

    def kill(self) -> None:
        """End the server without a warning, and start the next."""
        self.running.process.kill()
        self.running.process.wait()
        self.running = self._open()


class Publisher:
    """Publishes numbers, each once, and remembers which of them were answered."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._number = 0
        self.answered: list[bytes] = []
        self.is_over = False

    async def publish(self) -> None:
        chance = random.Random(9)
        while not self.is_over:
            async with grpc.aio.insecure_channel(self._site.address) as channel:
                stub = Stub(channel)
                try:
                    while not self.is_over:
                        await self._publish(stub, chance.choice(TOPICS))
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.02)

    async def _publish(self, stub: Stub, topic: str) -> None:
        self._number += 1
        payload = b"%d" % self._number
        await stub.publish(nexusd.PublishRequest(topic=topic, payload=payload), timeout=5)
        self.answered.append(payload)


@pytest.mark.timeout(600)
async def test_a_killed_server_takes_nothing_with_it_that_was_answered(
    tmp_path: Path, scale: int, fork_server: ForkServer | None
) -> None:
    site = await asyncio.to_thread(Site, tmp_path, fork_server)
    try:
        follower, publisher = Follower(lambda: site.address, "a", "b/#"), Publisher(site)
        following = asyncio.ensure_future(follower.follow())
        await until(lambda: follower.id, "the follower has no id")
        publishing = asyncio.ensure_future(publisher.publish())
        for _ in range(KILLS * scale):
            answered, resumed = len(publisher.answered), follower.resumptions

            def is_busy(answered: int = answered) -> bool:
                return len(publisher.answered) > answered + 20

            def has_resumed(resumed: int = resumed) -> bool:
                return follower.resumptions > resumed or bool(follower.faults)

            await until(is_busy, "fewer than 20 further messages were acknowledged")
            await asyncio.to_thread(site.kill)
            await until(has_resumed, "the follower did not resume")
        publisher.is_over = True
        await publishing
        await until(
            lambda: follower.faults or set(publisher.answered) <= set(follower.payloads),
            "the follower did not receive all acknowledged messages",
        )
        following.cancel()
        await asyncio.wait((following,))
    finally:
        site.running.stop()
    wanted = set(publisher.answered)
    arrived = [payload for payload in follower.payloads if payload in wanted]
    assert follower.faults == []
    assert arrived == publisher.answered
