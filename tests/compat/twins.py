"""Common interface of both clients for shared tests; the blocking one runs in threads."""

import asyncio
from typing import Any, Self

from penstock.compat.nexusd_client import (
    AsyncNexusdClient,
    Message,
    NexusdClient,
    ReconnectionPolicy,
    SubscriptionInfo,
)

TIMEOUT_S = 20.0
SOON = ReconnectionPolicy(initial_delay_ms=20, max_delay_ms=200)
"""A policy for tests, which do not want to wait."""


class Reader:
    """A subscription of either client."""

    def __init__(self, subscription: Any) -> None:
        self.subscription = subscription

    async def start(self) -> SubscriptionInfo:
        """Wait until it is accepted."""
        async with asyncio.timeout(TIMEOUT_S):
            if hasattr(self.subscription, "__anext__"):
                info: SubscriptionInfo = await self.subscription.start()
                return info
            return await asyncio.to_thread(self.subscription.start)

    async def next(self) -> Message | None:
        """The next message; None if the subscription has ended."""
        async with asyncio.timeout(TIMEOUT_S):
            if hasattr(self.subscription, "__anext__"):
                return await anext(self.subscription, None)
            return await asyncio.to_thread(next, self.subscription, None)

    async def payloads(self, count: int) -> list[bytes]:
        """What the next messages say."""
        return [message.payload for _ in range(count) if (message := await self.next()) is not None]

    async def close(self) -> None:
        done = self.subscription.close()
        if done is not None:
            await done


class Twin:
    """A client of either kind; its calls are awaited."""

    def __init__(self, kind: str, address: str, **options: Any) -> None:
        options = {"reconnection_policy": SOON, "timeout_ms": 20_000, **options}
        self.client: Any = (AsyncNexusdClient if kind == "async" else NexusdClient)(address, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.call("close")

    async def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method by its name."""
        method = getattr(self.client, name)
        if isinstance(self.client, AsyncNexusdClient):
            return await method(*arguments, **options)
        return await asyncio.to_thread(method, *arguments, **options)

    async def publish(self, topic: str, *payloads: bytes, **options: Any) -> None:
        for payload in payloads:
            await self.call("publish", topic, payload, **options)

    def subscribe(self, topics: list[str], **options: Any) -> Reader:
        return Reader(self.client.subscribe(topics, **options))
