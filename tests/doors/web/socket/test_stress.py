"""The stress scenarios that clients of the In-memory Pub/Sub know, with everything counted."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from penstock.app import Server
from tests.doors.web.socket.talking import Talker


async def test_fifty_subscribers_get_fifty_messages_in_order(server: Server, name: str) -> None:
    server.broker.declare_topic(name)
    async with AsyncExitStack() as stack, Talker(server) as publisher:
        readers = [await stack.enter_async_context(Talker(server)) for _ in range(50)]
        for reader in readers:
            await reader.subscribe(name)
        for number in range(50):
            answer = await publisher.ask("publish", topic=name, data=number)
            assert answer["message"] == "Published to 50 subscriber(s)"
        for reader in readers:
            assert await reader.data(50) == list(range(50))


async def test_five_publishers_reach_ten_subscribers_with_all_they_send(server: Server, name: str) -> None:
    server.broker.declare_topic(name)
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(Talker(server)) for _ in range(10)]
        publishers = [await stack.enter_async_context(Talker(server)) for _ in range(5)]
        for reader in readers:
            await reader.subscribe(name)
        sent = [[[who, number] for number in range(200)] for who in range(5)]
        async with asyncio.TaskGroup() as group:
            for publisher, values in zip(publishers, sent, strict=True):
                group.create_task(publisher.publish(name, *values))
        heard = [await reader.data(1_000) for reader in readers]
        assert all(each == heard[0] for each in heard)  # one order for all
        assert [[each for each in heard[0] if each[0] == who] for who in range(5)] == sent


async def test_who_comes_back_is_served_as_before(server: Server, name: str) -> None:
    server.broker.declare_topic(name)
    ids: Counter[str] = Counter()
    for number in range(10):
        async with Talker(server) as talker:
            ids[talker.client_id] += 1
            await talker.subscribe(name, last_n=1)
            assert (await talker.answer())["message"] == "replay_complete"
            await talker.publish(name, number)
            assert (await talker.data(2 if number else 1))[-1] == number
    assert len(ids) == 10
    assert server.broker.counters.connections == 10
