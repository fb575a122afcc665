"""Callers of `SidecarService` that keep count."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from penstock.client.grpc.nexusd.stub import Stub
from penstock.wire.sidecar.messages import nexusd
from tests.support.waiting import until

PATIENCE_S = 60.0
OPTIONS = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own


@asynccontextmanager
async def calls_to(port: int) -> AsyncIterator[Stub]:
    """The calls of a server, over one connection."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", OPTIONS) as channel:
        yield Stub(channel)


async def begin(stub: Stub, *topics: str, client_id: str = "") -> Any:
    """A subscription that the server has accepted."""
    call = stub.events(nexusd.SubscribeRequest(topics=topics, client_id=client_id))
    async with asyncio.timeout(PATIENCE_S):
        first = await call.read()
    assert first.HasField("subscription_info")
    return call


async def publish(stub: Stub, topic: str, payload: bytes) -> nexusd.PublishResponse:
    response: nexusd.PublishResponse = await stub.publish(
        nexusd.PublishRequest(topic=topic, payload=payload), timeout=PATIENCE_S
    )
    assert response.success
    return response


class Steady:
    """A subscriber that is always there, and must get every message of its topics in order."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.lasts: dict[str, int] = {}
        """The number of the last message of each topic; there are as many."""
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while (event := await self._call.read()) is not grpc.aio.EOF:
            assert not event.HasField("backpressure_warning")
            if event.HasField("message"):
                topic, sequence = event.message.topic, event.message.sequence_number
                assert sequence == self.lasts.get(topic, 0) + 1
                self.lasts[topic] = sequence

    async def has(self, wanted: dict[str, int]) -> None:
        """Wait until it has so many messages of each topic, and no more."""
        await until(
            lambda: self.lasts == wanted or self._task.done(),
            "the last messages did not arrive",
            timeout_s=PATIENCE_S,
        )
        if self._task.done():
            self._task.result()
        assert self.lasts == wanted

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self._call.cancel()
