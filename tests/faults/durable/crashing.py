"""Load that goes on while servers end, one after another, and what must be true after it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from penstock.wire.mqtt import ReasonCode, Version
from tests.faults.durable.homes import Home
from tests.faults.durable.load import Publisher, Subscriber
from tests.faults.durable.reckoning import ALL_IS_WELL, names_of, reckon
from tests.support.waiting import until

LOOK_EVERY_S = 0.005
STUMBLES = 0.3
"""How often a server that has just begun is killed once more."""
STUMBLE_WITHIN_S = 0.6

End = Callable[[Home], Awaitable[None]]


class Load:
    """Publishers, and three kinds of subscribers: always there, slow, and absent."""

    def __init__(
        self,
        home: Home,
        version: Version,
        qos: int,
        *,
        publishers: int = 3,
        window: int = 20,
        size: int = 0,
        pace_s: float = 0.001,
        insists: bool = False,
    ) -> None:
        self.home = home
        self.publishers = [
            Publisher(home, f"publisher-{n}", version, qos, window=window, size=size, insists=insists)
            for n in range(publishers)
        ]
        self._may_be_refused = insists
        self.constant = Subscriber(home, "constant", version, qos, size=size)
        self.slow = Subscriber(home, "slow", version, qos, size=size, window=10, pace_s=pace_s)
        self.absent = Subscriber(home, "absent", version, qos, size=size)

    @property
    def subscribers(self) -> Sequence[Subscriber]:
        return self.constant, self.slow, self.absent

    @property
    def acknowledged(self) -> int:
        """How many messages the server has taken over."""
        return sum(len(publisher.acknowledged) for publisher in self.publishers)

    async def run(self, ends: Sequence[End], dice: Random, least: int = 1, most: int = 500) -> None:
        """Go on under load while servers end and begin, one way after the other, and account for everything.

        Between two ends so many messages are taken over, or a few more, however fast this goes.
        """
        for subscriber in self.subscribers:
            await subscriber.subscribe()
        await self.absent.leave()
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(each.run()) for each in (self.constant, self.slow)]
            writing = [tasks.create_task(each.run()) for each in self.publishers]
            for end in ends:
                await self.has_taken(dice.randrange(least, most))
                await end(self.home)
            await self.has_taken(dice.randrange(least, most))
            for publisher in self.publishers:
                publisher.finish()
            await asyncio.gather(*writing)
            self.slow.pace_s = 0.0
            reading.append(tasks.create_task(self.absent.run()))
            await self._all_is_there()
            for task in reading:
                task.cancel()
        self.check()

    async def has_taken(self, more: int) -> None:
        """Wait until the server has taken so many more messages over."""
        wanted = self.acknowledged + more
        await until(
            lambda: self.acknowledged >= wanted,
            "not enough messages were acknowledged",
            timeout_s=120,
            every_s=LOOK_EVERY_S,
        )

    async def _all_is_there(self) -> None:
        wanted = names_of(self.publishers)
        with contextlib.suppress(TimeoutError):  # what is missing is named by `check`
            for subscriber in self.subscribers:
                await subscriber.has(wanted)
                await subscriber.settle()

    def check(self) -> None:
        """Nothing is lost, out of order or repeated; everyone has found its session each time."""
        starts = " ".join(f"{start:.2f}" for start in self.home.starts_s)
        print(f"{self.acknowledged} messages; starts in {starts} s")
        for caller in (*self.publishers, *self.subscribers):
            assert self._may_be_refused or not caller.turned_away
        for publisher in self.publishers:
            allowed = {ReasonCode.QUOTA_EXCEEDED} if self._may_be_refused else set[int]()
            assert {refusal.reason for refusal in publisher.refusals} <= allowed
            assert publisher.sessions_lost == 0
            assert publisher.acknowledged == set(range(publisher.published))
        for subscriber in self.subscribers:
            found = reckon(self.publishers, subscriber)
            assert found == ALL_IS_WELL, f"{subscriber.client_id}: {found}"


def kill_with(dice: Random) -> End:
    """Ends servers by kill -9, now and then a second time while they begin."""

    async def end(home: Home) -> None:
        home.kill()
        while dice.random() < STUMBLES:
            await home.stumble(dice.random() * STUMBLE_WITHIN_S)
        await home.open()

    return end
