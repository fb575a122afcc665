"""What is published by one stream, seen from its other end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from penstock.client.grpc.dialect import Entry
from penstock.client.grpc.v1.publish import Publisher
from penstock.errors import PenstockError, TooLarge
from penstock.wire.sidecar.messages import penstock as words

PATIENCE_S = 10.0


class Stream:
    """The far end of a stream: it takes batches, and answers what it is told to."""

    def __init__(self, batches: AsyncIterator[words.PublishBatch]) -> None:
        self._batches = batches
        self._answers: asyncio.Queue[words.PublishAck | Exception] = asyncio.Queue()

    async def take(self) -> words.PublishBatch:
        async with asyncio.timeout(PATIENCE_S):
            return await anext(self._batches)

    def accept(self, batch: words.PublishBatch) -> None:
        placed = [words.Placed(index=index) for index in range(len(batch.messages))]
        self._answers.put_nowait(
            words.PublishAck(batch_id=batch.batch_id, accepted=len(placed), placed=placed)
        )

    def refuse_size(self) -> None:
        nothing = grpc.aio.Metadata()
        status = grpc.StatusCode.RESOURCE_EXHAUSTED
        self._answers.put_nowait(
            grpc.aio.AioRpcError(status, nothing, nothing, details="too-large: not so much")
        )

    async def read(self) -> words.PublishAck:
        answer = await self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self) -> None:
        pass


class Server:
    """Opens streams, and keeps them."""

    def __init__(self) -> None:
        self.streams: asyncio.Queue[Stream] = asyncio.Queue()

    def open(self, batches: AsyncIterator[words.PublishBatch]) -> Any:
        stream = Stream(batches)
        self.streams.put_nowait(stream)
        return stream


def entry(topic: str, size: int = 1) -> list[Entry]:
    return [Entry(topic, [bytes(size)])]


def topics(batch: words.PublishBatch) -> list[str]:
    return [messages.topic for messages in batch.messages]


async def test_a_publish_that_is_cancelled_before_it_left_does_not_leave() -> None:
    server = Server()
    publisher = Publisher(server.open)
    given_up = asyncio.create_task(publisher.publish(entry("given-up")))
    wanted = asyncio.create_task(publisher.publish(entry("wanted")))
    stream = await server.streams.get()
    given_up.cancel()
    await asyncio.wait([given_up])
    batch = await stream.take()
    assert topics(batch) == ["wanted"]
    stream.accept(batch)
    assert (await wanted).accepted == 1
    await publisher.close()


async def test_who_publishes_behind_something_too_large_is_not_punished() -> None:
    server = Server()
    publisher = Publisher(server.open)
    large = asyncio.create_task(publisher.publish(entry("large", 3_000_000)))
    small = [asyncio.create_task(publisher.publish(entry(f"small{number}"))) for number in range(2)]
    stream = await server.streams.get()
    assert topics(await stream.take()) == ["large"]
    assert topics(await stream.take()) == ["small0", "small1"]
    late = asyncio.create_task(publisher.publish(entry("late")))
    await asyncio.sleep(0)
    stream.refuse_size()
    with pytest.raises(TooLarge):
        await large
    another = await server.streams.get()
    batch = await another.take()
    assert topics(batch) == ["small0", "small1", "late"]
    another.accept(batch)
    assert [answer.accepted for answer in await asyncio.gather(*small, late)] == [1, 1, 1]
    with pytest.raises(StopAsyncIteration):
        await stream.take()
    await publisher.close()


async def test_what_cannot_be_said_at_all_is_refused_where_it_is_published() -> None:
    server = Server()
    publisher = Publisher(server.open)
    with pytest.raises(UnicodeEncodeError):
        await publisher.publish(entry("\ud800"))
    fine = asyncio.create_task(publisher.publish(entry("fine")))
    stream = await server.streams.get()
    batch = await stream.take()
    assert topics(batch) == ["fine"]
    stream.accept(batch)
    await fine
    await publisher.close()


async def test_a_stream_that_cannot_be_opened_is_told_to_who_publishes() -> None:
    def fail(batches: AsyncIterator[words.PublishBatch]) -> Any:
        raise RuntimeError("no more streams")

    publisher = Publisher(fail)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(PenstockError, match="no more streams"):
            await publisher.publish(entry("a"))
    await publisher.close()
