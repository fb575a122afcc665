"""Connections that are cut at any moment: nothing is lost, nothing comes twice."""

import asyncio
import random

import pytest

from penstock.core.settings import RingSettings
from tests.doors.serving import Start, port_of
from tests.doors.sidecar.calling import TIMEOUT_S, Client
from tests.doors.sidecar.following import Follower
from tests.support.waiting import until

TOPICS = ("a", "b", "c/1", "c/2")
EVERYTHING = RingSettings(messages=100_000, topic_bytes=2**26, total_bytes=2**30)
CUTS = 50


class Cutter:
    """Stands between clients and a server, and cuts what goes through."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    async def open(self) -> str:
        """Begin, and answer where."""
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """End all connections; what was under way is lost."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def close(self) -> None:
        """Let nobody through any more."""
        self._server.close()
        self.cut()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, behind}
        for source, drain in ((reader, behind), (behind_reader, writer)):
            pump = asyncio.ensure_future(self._pump(source, drain))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                drain.write(data)
                await drain.drain()
        except ConnectionError:
            pass
        drain.transport.abort()


@pytest.mark.timeout(600)
async def test_whoever_resumes_gets_everything_once(start: Start, scale: int) -> None:
    server = await start(ring=EVERYTHING)
    cutter = Cutter(port_of(server, "grpc"))
    where = await cutter.open()
    follower = Follower(lambda: where, "a", "b", "c/#")
    following = asyncio.ensure_future(follower.follow())
    await until(lambda: follower.id, "the follower has no id")
    chance = random.Random(8)
    counts = dict.fromkeys(TOPICS, 0)
    is_over = False

    async def publish(client: Client) -> None:
        while not is_over:
            topic = chance.choice(TOPICS)
            counts[topic] += 1
            await client.publish(topic, bytes(chance.randrange(2_000)))

    async with Client(server) as client:
        publishing = [asyncio.ensure_future(publish(client)) for _ in range(3)]
        for _ in range(CUTS * scale):
            seen = follower.resumptions
            await asyncio.sleep(chance.random() * 0.02)
            cutter.cut()

            def has_resumed(seen: int = seen) -> bool:
                return follower.resumptions > seen or bool(follower.faults)

            await until(has_resumed, "the follower did not resume")
        is_over = True
        await asyncio.wait_for(asyncio.gather(*publishing), TIMEOUT_S)
    await until(
        lambda: follower.faults or follower.last == {k: v for k, v in counts.items() if v},
        "the follower did not receive the last messages",
    )
    following.cancel()
    await asyncio.wait((following,))
    await cutter.close()
    assert (follower.faults, follower.gaps) == ([], [])
    assert follower.resumptions >= CUTS * scale
