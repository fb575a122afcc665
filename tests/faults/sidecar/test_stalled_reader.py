"""A subscriber that stops reading loses messages, and nobody else does; it is told how many."""

import asyncio
from typing import Any

import pytest

from penstock.client.grpc.nexusd.stub import Stub
from tests.faults.sidecar.callers import PATIENCE_S, Steady, begin, calls_to, publish
from tests.faults.watching import MIB, Costs, Witness
from tests.support.servers import StartServer

COUNT = 15_000
PUBLISHERS = 8
LIMIT = 2_000
END = b"end"


class Load:
    """Publishes, and adds up how often a message did not get to a subscriber."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self.published = 0
        self.dropped = 0

    async def publish(self, payload: bytes) -> None:
        response = await publish(self._stub, "load", payload)
        assert response.subscriber_count == 2
        self.published += 1
        self.dropped += response.subscribers_dropped

    async def publish_many(self) -> None:
        async def some() -> None:
            for _ in range(COUNT // PUBLISHERS):
                await self.publish(bytes(1_024))

        await asyncio.gather(*(some() for _ in range(PUBLISHERS)))


class Stalled:
    """What it reads when it reads again."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.sequences: list[int] = []
        self.warned = 0
        self.limits: set[int] = set()
        self.reasons: set[str] = set()
        self._is_at_end = False

    @property
    def missing(self) -> int:
        return self.sequences[-1] - len(self.sequences)

    async def read(self) -> None:
        """Everything up to the end, and until all that is missing was told."""
        while not self._is_at_end or self.warned < self.missing:
            event = await self._call.read()
            if event.HasField("message"):
                self.sequences.append(event.message.sequence_number)
                self._is_at_end = event.message.payload == END
            elif event.HasField("backpressure_warning"):
                self.warned += event.backpressure_warning.messages_dropped
                self.limits.add(event.backpressure_warning.queue_limit)
                self.reasons.add(event.backpressure_warning.reason)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
async def test_a_stalled_subscriber_loses_messages_and_is_told_how_many(
    start_server: StartServer, policy: str
) -> None:
    server = start_server({"outbox": {"messages": LIMIT}}, "--backpressure-policy", policy)
    port = server.port_of("grpc")
    async with calls_to(port) as publisher, calls_to(port) as watcher, calls_to(port) as visitor:
        steady, call = Steady(await begin(watcher, "load")), await begin(visitor, "load")
        load, stalled = Load(publisher), Stalled(call)
        costs = Costs(server)
        async with Witness(server):
            await load.publish_many()
        assert costs.more_bytes < 64 * MIB
        reading = asyncio.create_task(stalled.read())
        async with asyncio.timeout(PATIENCE_S):
            while not reading.done():
                await load.publish(END)
                await asyncio.sleep(0.1)
        await reading
        await steady.has({"load": load.published})
        call.cancel()
        await steady.leave()
    assert stalled.sequences == sorted(set(stalled.sequences))
    assert stalled.warned == stalled.missing > 0
    assert stalled.limits == {LIMIT}
    assert stalled.reasons <= {"burst", "slow_consumer"}
    assert load.dropped == stalled.missing  # each cost one: itself, or the oldest
