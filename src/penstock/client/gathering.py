"""Makes batches of messages that come when they come: full ones if many wait, small ones if few do."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable

from penstock.client.batches import Batching, Publishable
from penstock.client.dialect import Entry


async def gather(messages: AsyncIterable[Publishable]) -> AsyncGenerator[list[Entry], None]:
    """Messages in batches, none of which waits for its next message."""
    gathering = _Gathering()
    task = asyncio.create_task(gathering.run(messages))
    try:
        while gathering.batching or not task.done():
            if gathering.batching:
                batch = gathering.batching.take()
                gathering.room.set()
                yield batch
            else:
                gathering.something.clear()
                await gathering.something.wait()
        await task  # raises what the application's own iterator raised
    finally:
        task.cancel()
        await asyncio.wait([task])


class _Gathering:
    def __init__(self) -> None:
        self.batching = Batching()
        self.something = asyncio.Event()
        self.room = asyncio.Event()

    async def run(self, messages: AsyncIterable[Publishable]) -> None:
        try:
            async for message in messages:
                is_full = self.batching.add(message)
                self.something.set()
                if is_full:
                    self.room.clear()
                    await self.room.wait()
        finally:
            self.something.set()
