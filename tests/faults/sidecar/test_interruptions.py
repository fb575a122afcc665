"""Connections break and servers are killed while clients resume: all comes once, or a gap is told."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from random import Random
from typing import NamedTuple

import pytest

from penstock.compat.nexusd_client import AsyncNexusdClient, NexusdError, ReconnectionPolicy
from tests.client.grpc.cable import Cable, cable_to
from tests.faults.durable.homes import Home, MakeHome, NobodyHome
from tests.support.waiting import until

TOPICS = ("orders", "stock", "prices")
SOON = ReconnectionPolicy(initial_delay_ms=5, max_delay_ms=100)
PATIENCE_S = 30.0
KILLS = 0.06
"""How often it is the server that ends, and not a connection."""


class Named(NamedTuple):
    """A message, by what its publisher called it."""

    topic: str
    number: int


class Publisher:
    """Publishes numbered messages over a connection of its own, whatever happens."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.acknowledged: list[Named] = []
        self._is_over = False

    def finish(self) -> None:
        self._is_over = True

    async def run(self) -> None:
        number = 0
        while not self._is_over:
            with contextlib.suppress(NobodyHome, NexusdError):  # what was not acknowledged may be gone
                async with AsyncNexusdClient(f"127.0.0.1:{self._home.server.port_of('grpc')}") as client:
                    while not self._is_over:
                        number += 1
                        message = Named(TOPICS[number % len(TOPICS)], number)
                        await client.publish(message.topic, b"%d" % number)
                        self.acknowledged.append(message)
            await asyncio.sleep(0.01)


class Reader:
    """Reads through a cable, across everything that happens to it, and notes what it is told."""

    def __init__(self, cable: Cable) -> None:
        self._client = AsyncNexusdClient(cable.address, reconnection_policy=SOON)
        self._client.on_gap_detected(self._on_gap)
        self.received: list[Named] = []
        self.gaps: list[tuple[int, int, str]] = []

    def _on_gap(self, expected: int, actual: int, topic: str) -> None:
        self.gaps.append((expected, actual, topic))

    async def run(self) -> AsyncIterator[None]:
        subscription = self._client.subscribe(TOPICS)
        await subscription.start()
        yield
        async for message in subscription:
            self.received.append(Named(message.topic, int(message.payload)))
            yield

    async def leave(self) -> None:
        await self._client.close()

    def check(self, acknowledged: list[Named]) -> None:
        """Nothing twice, all in order, and nothing that was acknowledged is missing."""
        received = set(self.received)
        assert len(received) == len(self.received)
        by_topic = defaultdict[str, list[int]](list)
        for topic, number in self.received:
            by_topic[topic].append(number)
        assert all(numbers == sorted(numbers) for numbers in by_topic.values())
        assert [message for message in acknowledged if message not in received] == []


async def interrupt(home: Home, cable: Cable, dice: Random) -> str:
    """Cut the connection, once or again and again, or kill the server."""
    if dice.random() < KILLS:
        home.kill()
        cable.cut()
        await home.open()
        cable.far_port = home.server.port_of("grpc")
        return "kill"
    for _ in range(dice.choice((1, 1, 1, 3))):
        cable.cut()
        await asyncio.sleep(dice.random() * 0.02)
    return "cut"


@pytest.mark.timeout(600)
async def test_nothing_is_missing_and_nothing_comes_twice_whatever_breaks(
    make_home: MakeHome, dice: Random, scale: int
) -> None:
    """Fifty interruptions; a thousand in a soak."""
    count = 50 if scale == 1 else 1_000
    home = make_home()
    await home.open()
    async with cable_to(home.server.port_of("grpc")) as cable:
        reader, publisher = Reader(cable), Publisher(home)
        reading = reader.run()
        await anext(reading)
        tasks = [asyncio.create_task(publisher.run()), asyncio.create_task(exhaust(reading))]
        happened = []
        for _ in range(count):
            await has_taken(publisher, dice.randrange(1, 60))
            happened.append(await interrupt(home, cable, dice))
        await has_taken(publisher, 20)
        publisher.finish()
        await tasks[0]
        await has_all(reader, publisher.acknowledged)
        await reader.leave()
        await tasks[1]
    print(f"{happened.count('kill')} kills of {count}, {len(publisher.acknowledged)} messages, {reader.gaps}")
    reader.check(publisher.acknowledged)
    home.was_well()


async def exhaust(reading: AsyncIterator[None]) -> None:
    async for _ in reading:
        pass


async def has_taken(publisher: Publisher, more: int) -> None:
    """Wait until the server has taken so many more messages."""
    wanted = len(publisher.acknowledged) + more
    await until(
        lambda: len(publisher.acknowledged) >= wanted,
        "not enough messages were acknowledged",
        timeout_s=PATIENCE_S,
    )


async def has_all(reader: Reader, wanted: list[Named]) -> None:
    """Wait for messages; what is missing in the end is named by `check`."""
    with contextlib.suppress(TimeoutError):
        await until(
            lambda: set(wanted) <= set(reader.received),
            "the reader did not receive all messages",
            timeout_s=PATIENCE_S,
            every_s=0.05,
        )
