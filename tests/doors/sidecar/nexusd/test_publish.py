"""Publish: what arrives, what is kept, and what its caller is told."""

import asyncio

import grpc
import pytest

from penstock.app import Server
from penstock.core.settings import OutboxSettings, TopicRule
from penstock.model import Policy
from penstock.wire.sidecar.messages import nexusd
from tests.doors.serving import Start
from tests.doors.sidecar.calling import Client, Stub, sequences
from tests.doors.sidecar.serving import NO_LIMIT, MovableClock, address_of
from tests.doors.sidecar.stalling import stall
from tests.support.waiting import until


async def test_a_message_arrives_with_all_that_travels_with_it(server: Server, client: Client) -> None:
    events = await client.subscribe("a/b")
    answer = await client.publish("a/b", b"hello", content_type="text/plain", correlation_id="42")
    (message,) = await events.messages(1)
    assert answer.success
    assert answer.error_message == ""
    assert message.message_id == answer.message_id
    assert (message.topic, message.payload) == ("a/b", b"hello")
    assert (message.content_type, message.correlation_id) == ("text/plain", "42")
    assert (message.sequence_number, message.source_node_id) == (1, server.node_id)
    assert abs(message.timestamp_ms - server._clock.wall_us() // 1_000) < 60_000


async def test_sequences_rise_by_one_for_each_topic(client: Client) -> None:
    events = await client.subscribe("a", "b")
    for topic in ("a", "b", "a"):
        await client.publish(topic)
    messages = await events.messages(3)
    assert [(message.topic, message.sequence_number) for message in messages] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
    ]


async def test_nobody_there_is_no_error(client: Client) -> None:
    answer = await client.publish("nobody/here")
    assert (answer.success, answer.subscriber_count) == (True, 0)


async def test_every_subscriber_is_counted_once(client: Client) -> None:
    streams = [await client.subscribe("a", "a/#") for _ in range(3)]
    assert (await client.publish("a")).subscriber_count == 3
    for events in streams:
        await events.payloads(1)
        assert await events.is_silent()


async def test_a_retained_value_comes_first_to_who_asks_for_it(client: Client) -> None:
    await client.publish("a", b"old", retain=True)
    events = await client.subscribe("a", receive_retained=True)
    await client.publish("a", b"new")
    (kept,), (live,) = await events.messages(1, "retained_message"), await events.messages(1)
    assert (kept.payload, kept.sequence_number) == (b"old", 1)
    assert (live.payload, live.sequence_number) == (b"new", 2)


async def test_a_retained_value_does_not_come_to_who_does_not_ask(client: Client) -> None:
    await client.publish("a", b"old", retain=True)
    events = await client.subscribe("a")
    assert await events.is_silent()


async def test_an_empty_retained_message_deletes_the_value(client: Client) -> None:
    await client.publish("a", b"old", retain=True)
    await client.publish("a", b"", retain=True)
    events = await client.subscribe("a", receive_retained=True)
    assert await events.is_silent()


async def test_a_message_does_not_outlive_its_ttl(start: Start) -> None:
    clock = MovableClock()
    server = await start(clock=clock)
    async with Client(server) as client:
        await client.publish("a", b"brief", retain=True, ttl_ms=1_500)
        await client.publish("b", b"lasting", retain=True, ttl_ms=60_000)
        clock.advance(2.0)
        events = await client.subscribe("a", "b", receive_retained=True)
        assert await events.payloads(1, "retained_message") == [b"lasting"]
        assert await events.is_silent()


async def test_four_mebibytes_pass(client: Client) -> None:
    events = await client.subscribe("a")
    payload = bytes(3968 * 1024)
    assert (await client.publish("a", payload)).success
    assert await events.payloads(1) == [payload]


async def test_a_message_that_pushes_an_older_one_out_tells_its_publisher_so(start: Start) -> None:
    server = await start(outbox=OutboxSettings(messages=2))
    async with Client(server) as client, Client(server) as other:
        slow, fast = await client.subscribe("a"), await other.subscribe("a")
        with stall(server, slow.id):
            answers = [await client.publish("a", b"%d" % number) for number in range(3)]
        assert [answer.subscribers_dropped for answer in answers] == [0, 0, 1]
        assert [answer.subscriber_count for answer in answers] == [2, 2, 2]
        assert await fast.payloads(3) == [b"0", b"1", b"2"]


async def test_a_message_that_is_dropped_itself_is_counted(start: Start) -> None:
    rule = TopicRule(filter="a", policy=Policy.DROP_NEWEST)
    server = await start(outbox=OutboxSettings(messages=1), topics=(rule,))
    async with Client(server) as client:
        slow = await client.subscribe("a")
        with stall(server, slow.id):
            answers = [await client.publish("a") for _ in range(2)]
        assert [answer.subscribers_dropped for answer in answers] == [0, 1]


async def test_under_block_the_call_waits_and_nobody_else_does(start: Start) -> None:
    rule = TopicRule(filter="a", policy=Policy.BLOCK)
    limits = OutboxSettings(messages=1, block_timeout_ms=60_000)
    server = await start(outbox=limits, topics=(rule,))
    async with Client(server) as client, Client(server) as other:
        slow, fast = await client.subscribe("a"), await other.subscribe("b")
        with stall(server, slow.id):
            await client.publish("a", b"1")
            waiting = asyncio.ensure_future(client.publish("a", b"2"))
            await until(lambda: server.broker.backpressure.blocked, "no publisher is blocked")
            for publisher in (client, other):
                assert (await publisher.publish("b", b"3")).success
            assert await fast.payloads(2) == [b"3", b"3"]
            assert not waiting.done()
        answer = await waiting
        assert (answer.success, answer.subscribers_blocked) == (True, 1)
        assert await slow.payloads(2) == [b"1", b"2"]


async def test_under_block_publishers_wait_beside_each_other(start: Start) -> None:
    rule = TopicRule(filter="a", policy=Policy.BLOCK)
    server = await start(outbox=OutboxSettings(messages=1, block_timeout_ms=60_000), topics=(rule,))
    alone = ("grpc.use_local_subchannel_pool", 1)  # a connection of its own
    async with (
        Client(server) as client,
        Client(server, (), alone) as second,
        Client(server, (), alone) as third,
    ):
        slow = await client.subscribe("a")
        with stall(server, slow.id):
            await client.publish("a")
            waiting = [asyncio.ensure_future(each.publish("a")) for each in (client, second, third)]
            await until(
                lambda: server.broker.backpressure.blocked == len(waiting), "not all publishers are blocked"
            )
        answers = await asyncio.gather(*waiting)
        assert [answer.subscribers_blocked for answer in answers] == [1, 1, 1]
        assert sequences(await slow.messages(4)) == [1, 2, 3, 4]


async def test_who_waits_under_block_may_lose_patience(start: Start) -> None:
    rule = TopicRule(filter="a", policy=Policy.BLOCK)
    server = await start(outbox=OutboxSettings(messages=1, block_timeout_ms=60_000), topics=(rule,))
    async with Client(server) as client:
        slow = await client.subscribe("a")
        with stall(server, slow.id):
            await client.publish("a")
            request = nexusd.PublishRequest(topic="a")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.stub.publish(request, timeout=0.2)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_blocking_client_publishes_and_reads(server: Server) -> None:
    def story() -> list[bytes]:
        with grpc.insecure_channel(address_of(server), options=NO_LIMIT) as channel:
            stub = Stub(channel)
            events = stub.subscribe(nexusd.SubscribeRequest(topics=["a"]))
            assert next(events).HasField("subscription_info")
            for number in range(3):
                stub.publish(nexusd.PublishRequest(topic="a", payload=b"%d" % number), timeout=30)
            payloads = [next(events).message.payload for _ in range(3)]
            events.cancel()
            return payloads

    assert await asyncio.to_thread(story) == [b"0", b"1", b"2"]


async def test_refused_messages_are_counted(server: Server, client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await client.publish("a/#")
    await client.publish("a")
    assert (server.broker.counters.publishes_refused, server.broker.counters.published) == (1, 1)


async def test_a_call_that_lost_patience_before_its_turn_publishes_nothing(start: Start) -> None:
    rule = TopicRule(filter="a", policy=Policy.BLOCK)
    server = await start(outbox=OutboxSettings(messages=1, block_timeout_ms=60_000), topics=(rule,))
    async with Client(server) as client:
        slow = await client.subscribe("a")
        with stall(server, slow.id):
            await client.publish("a", b"1")
            held = asyncio.ensure_future(client.publish("a", b"2"))
            await until(lambda: server.broker.backpressure.blocked, "no publisher is blocked")
            with pytest.raises(grpc.aio.AioRpcError):
                await client.stub.publish(nexusd.PublishRequest(topic="a", payload=b"3"), timeout=0.2)
            await until(
                lambda: calls_given_up(server), "no call was given up"
            )  # the server has to notice, too
        await held
        await client.publish("a", b"4")
        assert await slow.payloads(3) == [b"1", b"2", b"4"]


def calls_given_up(server: Server) -> int:
    """How many calls have ended by their deadline, whoever of both was the first to see that it is over."""
    figures = server.sidecar.figures()
    return figures["calls_DEADLINE_EXCEEDED"] + figures["calls_CANCELLED"]


async def test_messages_are_not_gathered_for_who_goes_by_their_order(start: Start) -> None:
    rule = TopicRule(filter="a", batch_size=100, batch_timeout_ms=60_000)
    server = await start(topics=(rule,))
    async with Client(server) as client:
        events = await client.subscribe("a")
        await client.publish("a", b"1")
        assert await events.payloads(1) == [b"1"]
