"""Subscriptions that come and go while others publish: nobody else notices, and nothing of them stays."""

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from penstock.client.grpc.nexusd.stub import Stub
from tests.faults.sidecar.callers import Steady, begin, calls_to, publish
from tests.faults.watching import Costs, Witness
from tests.support.servers import StartServer

AT_ONCE = 10
KIB = 1024
PAUSED_MS = 500


class Publishers:
    """Three that publish as fast as they are answered."""

    def __init__(self, stubs: list[Stub]) -> None:
        self.counts = {f"churn/{number}": 0 for number in range(len(stubs))}
        self._tasks = [
            asyncio.create_task(self._publish(stub, topic))
            for stub, topic in zip(stubs, self.counts, strict=True)
        ]
        self._is_over = False

    async def _publish(self, stub: Stub, topic: str) -> None:
        while not self._is_over:
            response = await publish(stub, topic, b"x" * 100)
            self.counts[topic] += 1
            assert response.subscriber_count >= 1  # the steady one, and visitors
            assert response.subscribers_dropped == response.subscribers_blocked == 0

    async def finish(self) -> dict[str, int]:
        """Stop, and say how many were published."""
        self._is_over = True
        await asyncio.gather(*self._tasks)
        return self.counts


async def visit(stub: Stub, dice: Random, number: int) -> None:
    """Subscribe, read a little or nothing, and cancel."""
    call = await begin(stub, "churn/#", client_id=f"visitor-{number}")
    lasts: dict[str, int] = {}
    for _ in range(dice.choice((0, 0, 1, 5))):
        event = await call.read()
        topic, sequence = event.message.topic, event.message.sequence_number
        assert sequence == lasts.get(topic, sequence - 1) + 1
        lasts[topic] = sequence
    call.cancel()


async def visit_often(stub: Stub, dice: Random, count: int) -> None:
    for start in range(0, count, AT_ONCE):
        await asyncio.gather(*(visit(stub, dice, start + each) for each in range(AT_ONCE)))


async def sessions_are_gone(stub: Stub) -> int:
    """Whoever cancelled is not counted any more; answers how often it took to ask."""
    for asked in range(1, 400):
        response = await publish(stub, "churn/counted", b"")
        if response.subscriber_count == 1:
            return asked
        await asyncio.sleep(0.05)
    pytest.fail(f"{response.subscriber_count - 1} subscribers stayed behind")


@pytest.mark.timeout(600)
async def test_subscriptions_that_come_and_go_cost_nobody_anything(
    start_server: StartServer, dice: Random, scale: int
) -> None:
    """Ten thousand in a soak."""
    count = 300 if scale == 1 else 10_000
    server = start_server({"sidecar": {"port": 0, "paused_ttl_ms": PAUSED_MS}})
    port = server.port_of("grpc")
    async with AsyncExitStack() as stack, Witness(server):

        async def caller() -> Any:
            return await stack.enter_async_context(calls_to(port))

        visitors, watcher = await caller(), await caller()
        steady = Steady(await begin(watcher, "churn/#"))
        publishers = Publishers([await caller() for _ in range(3)])
        await visit_often(visitors, dice, 2 * AT_ONCE)  # what is made once is made now
        costs = Costs(server)
        await visit_often(visitors, dice, count)
        counts = await publishers.finish()
        counts["churn/counted"] = await sessions_are_gone(watcher)
        await steady.has(counts)
        await costs.are_back()
        assert costs.more_bytes < count * 2 * KIB + 8 * KIB * KIB
        await steady.leave()
