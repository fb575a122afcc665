"""Common interface of both twins for shared tests; the blocking one runs in threads."""

import asyncio
from collections.abc import Callable
from typing import Any, Self

import penstock
from penstock.client import Client, ReceivedMessage, Reconnection, SyncClient, SyncSubscription
from tests.support.servers import START_TIMEOUT_S

PATIENCE_S = 20.0
QUICK = Reconnection(initial_s=0.05, max_s=0.2)
"""Tries again at once, nearly."""

Connect = Callable[..., Any]
"""Gives a client to be entered with `async with`, whichever twin it is."""


class Threaded:
    """An object whose methods are called in threads, and awaited."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.inner.open)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.inner.close)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found) or name == "confirm":
            return found

        async def call(*values: object, **options: object) -> object:
            return await asyncio.to_thread(found, *values, **options)

        return call


class ThreadedSubscription(Threaded):
    """A subscription of the synchronous twin."""

    inner: SyncSubscription

    def __len__(self) -> int:
        return len(self.inner)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        message = await asyncio.to_thread(next, self.inner, None)
        if message is None:
            raise StopAsyncIteration
        return message


class ThreadedClient(Threaded):
    """The synchronous twin."""

    inner: SyncClient

    def subscribe(self, *filters: str, **options: Any) -> ThreadedSubscription:
        return ThreadedSubscription(self.inner.subscribe(*filters, **options))


def connect_aio(address: str, **options: Any) -> Client:
    """The asynchronous twin, as it is."""
    return penstock.connect(address, **options)


def connect_threaded(address: str, **options: Any) -> ThreadedClient:
    """The synchronous twin, awaited."""
    return ThreadedClient(penstock.connect_sync(address, **options))


TWINS: dict[str, Connect] = {"async": connect_aio, "sync": connect_threaded}


async def take(messages: Any, count: int) -> list[ReceivedMessage]:
    """So many messages."""
    if isinstance(messages, ThreadedSubscription):  # in one thread, because a thread for each takes long
        return await asyncio.to_thread(lambda: [messages.inner.receive(PATIENCE_S) for _ in range(count)])
    return [await messages.receive(PATIENCE_S) for _ in range(count)]


async def take_until(messages: Any, text: str) -> list[ReceivedMessage]:
    """Messages up to the one that says this; the server may be started again meanwhile."""
    if isinstance(messages, ThreadedSubscription):
        return await asyncio.to_thread(_take_until, messages.inner, text)
    taken = [await messages.receive(START_TIMEOUT_S)]
    while taken[-1].text != text:
        taken.append(await messages.receive(START_TIMEOUT_S))
    return taken


def _take_until(messages: SyncSubscription, text: str) -> list[ReceivedMessage]:
    taken = [messages.receive(START_TIMEOUT_S)]
    while taken[-1].text != text:
        taken.append(messages.receive(START_TIMEOUT_S))
    return taken


def texts(messages: list[ReceivedMessage]) -> list[str]:
    """What messages say."""
    return [message.text for message in messages]
