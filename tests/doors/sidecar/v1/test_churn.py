"""Many who come and go while others publish: nothing is lost unseen, nothing comes twice, nobody stays."""

from asyncio import Event, TaskGroup, sleep
from random import Random

import pytest

from tests.doors.sidecar.v1.people import Caller, House, Listener, entry

ROUNDS = [50, pytest.param(1_000, marks=(pytest.mark.soak, pytest.mark.timeout(600)))]


async def publish_until(caller: Caller, topic: str, done: Event) -> int:
    """Publish to a topic until somebody says that it is enough; answer how many."""
    publisher, count = caller.publish(), 0
    while not done.is_set():
        await publisher.send(entry(topic, *[b"x" * 100] * 10))
        count += 10
        await sleep(0.001)
    await publisher.end()
    return count


async def sequences_of(listener: Listener, most: int) -> list[int]:
    """Sequences of the next messages, about so many; what else comes is passed over."""
    sequences: list[int] = []
    while len(sequences) < most:
        event = await listener.take()
        listener.cursor = event.delivery.cursor or listener.cursor
        for run in event.delivery.runs:
            sequences += range(run.sequence, run.sequence + len(run.payloads))
    return sequences


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_streams_that_are_cut_at_random_go_on_without_gap_or_double(house: House, rounds: int) -> None:
    random, done, seen = Random(rounds), Event(), list[int]()
    start = (await house.caller().publish_once("a", b"first")).cursor
    async with TaskGroup() as tasks:
        publishing = tasks.create_task(publish_until(house.caller(), "a", done))
        reader, cursor = house.caller(), start
        for _ in range(rounds):
            listener = reader.subscribe()
            listener.cursor = cursor
            await listener.add("a", after=cursor)
            seen += await sequences_of(listener, random.randrange(1, 60))
            cursor = listener.cursor
            listener.call.cancel()
        done.set()
        total = 1 + await publishing
    assert seen == list(range(2, seen[-1] + 1))
    assert seen[-1] <= total
    await house.is_left()


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_subscribers_that_come_and_go_cost_publishers_nothing(house: House, rounds: int) -> None:
    done = Event()
    steady = await house.caller().listen("t/0")
    async with TaskGroup() as tasks:
        publishing = [
            tasks.create_task(publish_until(house.caller(), f"t/{number}", done)) for number in range(3)
        ]
        visitor = house.caller()
        for _ in range(rounds):
            listener = await visitor.listen("t/#", "t/1")
            listener.call.cancel()
        done.set()
        counts = [await task for task in publishing]
    assert await sequences_of(steady, counts[0]) == list(range(1, counts[0] + 1))
    steady.call.cancel()
    await house.is_left()
    assert house.broker.counters.published == sum(counts)
    assert not house.broker._node.router.match("t/0")
