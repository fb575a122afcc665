"""Typical use of the client by an application, for both twins."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from penstock.client import ClientState, ConnectionLost, GapNotice, NoAnswer, Outgoing
from penstock.client.grpc.publish import BATCH_MESSAGES
from penstock.errors import InvalidCursor, InvalidFilter, InvalidTopic, TooLarge
from tests.client.grpc.twins import PATIENCE_S, Connect, take, texts
from tests.support.servers import StartServer
from tests.support.waiting import until


@pytest.fixture
def topic() -> str:
    """One that nobody else uses."""
    return f"stories/{uuid4().hex}"


# Publishing


async def test_a_published_message_arrives_with_all_it_has(
    connect: Connect, address: str, topic: str
) -> None:
    async with connect(address) as client, client.subscribe(topic) as messages:
        receipt = await client.publish(
            topic,
            b"\x00\xff",
            content_type="application/octet-stream",
            correlation_id=b"\x01",
            response_topic="answers",
            message_id="m-1",
            properties=[("a", "1"), ("a", "2")],
        )
        (message,) = await take(messages, 1)
    assert (receipt.topic, receipt.sequence, receipt.subscribers, receipt.is_duplicate) == (
        topic,
        1,
        1,
        False,
    )
    assert receipt.cursor == message.cursor
    assert (message.topic, message.payload, message.sequence) == (topic, b"\x00\xff", 1)
    assert message.content_type == "application/octet-stream"
    assert (message.correlation_id, message.response_topic, message.message_id) == (b"\x01", "answers", "m-1")
    assert message.properties == (("a", "1"), ("a", "2"))
    assert not message.is_retained
    assert not message.is_replay
    assert abs(message.published_at - datetime.now(UTC)) < timedelta(minutes=5)


@pytest.mark.parametrize(("name", "shown"), [("pump-7", "pump-7"), ("wärme", "")])
async def test_a_message_is_known_by_the_name_of_its_client_where_that_is_plain(
    connect: Connect, address: str, topic: str, name: str, shown: str
) -> None:
    async with connect(address, client_id=name) as client:
        await client.publish(topic, "x")
        told = await client.why(topic, 1)
    assert told.message is not None
    assert (told.message.client_id or "") == shown


async def test_a_message_is_published_once_under_its_id(connect: Connect, address: str, topic: str) -> None:
    async with connect(address) as client, client.subscribe(topic) as messages:
        first = await client.publish(topic, "once", message_id="same")
        again = await client.publish(topic, "once", message_id="same")
        await client.publish(topic, "end")
        assert texts(await take(messages, 2)) == ["once", "end"]
    assert (first.is_duplicate, again.is_duplicate) == (False, True)
    assert first.sequence == again.sequence


async def test_a_refused_message_raises_what_the_server_said(
    connect: Connect, address: str, topic: str
) -> None:
    async with connect(address) as client:
        with pytest.raises(InvalidTopic):
            await client.publish(f"{topic}/#", "no")
        with pytest.raises(InvalidTopic):
            await client.publish("", "no")
        assert (await client.publish(topic, "yes")).sequence == 1


async def test_a_message_that_is_too_large_is_refused_and_the_next_is_not(
    connect: Connect, address: str, topic: str
) -> None:
    async with connect(address) as client:
        with pytest.raises(TooLarge):
            await client.publish(topic, bytes(5_000_000))
        assert (await client.publish(topic, "small")).sequence == 1
        assert client.state is ClientState.CONNECTED


async def test_a_hundred_thousand_messages_are_published_and_arrive_in_order(
    connect: Connect, address: str, topic: str
) -> None:
    total = 100_000
    async with connect(address) as client, client.subscribe(topic, policy="block") as messages:
        taking = asyncio.create_task(take(messages, total))
        summary = await client.publish_many((topic, str(number)) for number in range(total))
        assert texts(await taking) == [str(number) for number in range(total)]
    assert (summary.accepted, summary.refused, summary.duplicates) == (total, 0, 0)


async def test_what_is_refused_of_many_is_told_and_the_others_go_on(
    connect: Connect, address: str, topic: str
) -> None:
    good = [(topic, "a"), Outgoing(topic=topic, payload="b", message_id="1")]
    async with connect(address) as client, client.subscribe(topic) as messages:
        summary = await client.publish_many([*good, ("bad/#", "x"), ("bad/#", "y"), *good])
        await client.publish(topic, "end")
        assert texts(await take(messages, 4)) == ["a", "b", "a", "end"]
    (refusal,) = summary.refusals
    assert (summary.accepted, summary.refused, summary.duplicates) == (4, 2, 1)
    assert (refusal.first, refusal.count, refusal.topic, refusal.code) == (2, 2, "bad/#", "invalid-topic")


async def test_what_may_not_be_published_is_said_before_anything_is(connect: Connect, address: str) -> None:
    async with connect(address) as client:
        with pytest.raises(TypeError):
            await client.publish("a", 5)
        with pytest.raises(ValueError, match="time to live"):
            await client.publish("a", "b", ttl_s=0)


# Subscribing


async def test_filters_are_added_and_removed_while_messages_come(
    connect: Connect, address: str, topic: str
) -> None:
    async with connect(address) as client, client.subscribe(f"{topic}/a") as messages:
        await client.publish(f"{topic}/b", "unheard")
        await messages.add(f"{topic}/b", f"{topic}/c/#")
        for level in ("a", "b", "c/d"):
            await client.publish(f"{topic}/{level}", level)
        assert texts(await take(messages, 3)) == ["a", "b", "c/d"]
        assert set(messages.filters) == {f"{topic}/a", f"{topic}/b", f"{topic}/c/#"}
        await messages.remove(f"{topic}/a", f"{topic}/c/#")
        for level in ("a", "c/d", "b"):
            await client.publish(f"{topic}/{level}", f"{level} again")
        assert texts(await take(messages, 1)) == ["b again"]
        assert messages.filters == (f"{topic}/b",)


async def test_a_refused_filter_leaves_the_others(connect: Connect, address: str, topic: str) -> None:
    async with connect(address) as client, client.subscribe(topic) as messages:
        with pytest.raises(InvalidFilter):
            await messages.add("a/#/b")
        with pytest.raises(ValueError, match="at least one"):
            await messages.add()
        await client.publish(topic, "still here")
        assert texts(await take(messages, 1)) == ["still here"]
        assert messages.filters == (topic,)


async def test_a_subscription_that_is_refused_raises_where_it_is_entered(
    connect: Connect, address: str
) -> None:
    async with connect(address) as client:
        with pytest.raises(InvalidFilter):
            async with client.subscribe("a/#/b"):
                pass
        with pytest.raises(InvalidCursor):
            async with client.subscribe("a", after="nonsense"):
                pass


async def test_the_last_messages_come_first_and_then_what_is_live(
    connect: Connect, address: str, topic: str
) -> None:
    async with connect(address) as client:
        await client.publish_many([(topic, str(number)) for number in range(10)])
        async with client.subscribe(topic, last=3) as messages:
            await client.publish(topic, "live")
            got = await take(messages, 4)
            statement = messages.statement
    assert texts(got) == ["7", "8", "9", "live"]
    assert [message.is_replay for message in got] == [True, True, True, False]
    assert statement is not None
    assert (statement.served, statement.is_complete) == (3, True)


async def test_reading_goes_on_after_a_cursor(connect: Connect, address: str, topic: str) -> None:
    async with connect(address) as client:
        async with client.subscribe(topic) as messages:
            await client.publish_many([(topic, str(number)) for number in range(5)])
            await take(messages, 5)
            await client.publish(topic, "taken, and not confirmed")
            await take(messages, 1)
            cursor = messages.cursor
        await client.publish(topic, "meanwhile")
        async with client.subscribe(topic, after=cursor) as messages:
            assert texts(await take(messages, 2)) == ["taken, and not confirmed", "meanwhile"]
            messages.confirm()
            cursor = messages.cursor
        async with client.subscribe(topic, after=cursor) as messages:
            await client.publish(topic, "new")
            assert texts(await take(messages, 1)) == ["new"]


async def test_filters_that_are_added_bring_their_own_past(
    connect: Connect, address: str, topic: str
) -> None:
    async with connect(address) as client, client.subscribe(f"{topic}/a") as messages:
        receipt = await client.publish(f"{topic}/b", "1")
        await client.publish(f"{topic}/b", "2")
        await client.publish(f"{topic}/c", "3")
        await messages.add(f"{topic}/b", after=receipt.cursor)
        await messages.add(f"{topic}/c", last=1)
        assert texts(await take(messages, 2)) == ["2", "3"]


async def test_retained_values_come_first(connect: Connect, address: str, topic: str) -> None:
    async with connect(address) as client:
        await client.publish(f"{topic}/a", "kept", retain=True)
        async with client.subscribe(f"{topic}/#", retained=True) as messages:
            await client.publish(f"{topic}/a", "live")
            got = await take(messages, 2)
    assert [(message.text, message.is_retained) for message in got] == [("kept", True), ("live", False)]


async def test_what_is_missing_of_the_past_is_told_with_the_statement(
    connect: Connect, address: str, topic: str
) -> None:
    gaps: list[GapNotice] = []
    async with connect(address, on_gap=gaps.append) as client:
        first = await client.publish(topic, "0")
        await client.publish_many([(topic, str(number)) for number in range(1, 500)])  # a ring holds 100
        async with client.subscribe(topic, after=first.cursor) as messages:
            got = await take(messages, 1)
            await until(lambda: gaps, "no gap was reported", timeout_s=PATIENCE_S)
            assert messages.statement is gaps[0].statement
    (gap,) = gaps
    assert (gap.filters, gap.count, gap.reason) == ((topic,), None, "evicted")  # a ring does not count them
    assert gap.statement is not None
    assert [missing.last for missing in gap.statement.missing] == [got[0].sequence - 1]


async def test_a_slow_application_has_no_more_waiting_than_its_buffer(
    connect: Connect, address: str, topic: str
) -> None:
    async with connect(address) as client, client.subscribe(topic, buffer=10) as messages:
        await client.publish_many([(topic, str(number)) for number in range(1_000)])
        first = await take(messages, 1)
        await asyncio.sleep(0.3)
        assert len(messages) <= 10
        assert texts(first + await take(messages, 999)) == [str(number) for number in range(1_000)]


async def test_what_the_server_drops_for_a_slow_application_is_told(
    connect: Connect, start_server: StartServer, topic: str
) -> None:
    gaps: list[GapNotice] = []
    small = start_server({"outbox": {"messages": 10_000}})
    async with (
        connect(f"127.0.0.1:{small.port_of('grpc')}") as client,
        client.subscribe(topic, buffer=10, policy="drop-oldest", on_gap=gaps.append) as messages,
    ):
        for _ in range(5):
            await client.publish_many([(topic, "x" * 100) for number in range(BATCH_MESSAGES)])
        await until(lambda: messages.dropped, "no message was dropped", timeout_s=PATIENCE_S, every_s=0.05)
    assert sum(gap.count or 0 for gap in gaps) == messages.dropped
    assert {gap.filters for gap in gaps} == {(topic,)}


# Asking


async def test_several_requests_at_once_get_each_its_own_answer(
    connect: Connect, address: str, topic: str
) -> None:
    async with connect(address) as client, client.subscribe(topic) as requests:

        async def serve() -> None:
            for request in reversed(await take(requests, 5)):
                await client.respond(request, f"{request.text}!")

        serving = asyncio.create_task(serve())
        asked = (client.request(topic, str(number), timeout_s=PATIENCE_S) for number in range(5))
        answers = await asyncio.gather(*asked)
        await serving
    assert texts(answers) == ["0!", "1!", "2!", "3!", "4!"]


async def test_a_request_that_nobody_answers_ends_in_time(connect: Connect, address: str, topic: str) -> None:
    async with connect(address) as client:
        with pytest.raises(NoAnswer):
            await client.request(topic, "anybody?", timeout_s=0.2)


async def test_the_server_tells_of_topics_peers_and_reasons(
    connect: Connect, address: str, topic: str
) -> None:
    async with connect(address) as client, client.subscribe(topic):
        await client.publish(topic, "x")
        assert (await client.topics())[topic] == 1
        assert await client.peers() == []
        told = await client.why(topic, 1)
        assert told.newest == 1
        assert told.message is not None
        assert told.message.missing is None
        assert (await client.why(topic, 2)).code != told.code


# Ends


async def test_closing_a_client_ends_its_subscriptions(connect: Connect, address: str, topic: str) -> None:
    async with connect(address) as client:
        messages = client.subscribe(topic)
        await messages.__aenter__()
        waiting = asyncio.create_task(anext(messages, None))
        await asyncio.sleep(0.1)
    assert await asyncio.wait_for(waiting, PATIENCE_S) is None
    await messages.__aexit__(None, None, None)


async def test_a_client_that_was_closed_says_so(connect: Connect, address: str, topic: str) -> None:
    async with connect(address) as client:
        pass
    with pytest.raises(ConnectionLost):
        await client.publish(topic, "late")
    assert client.state is ClientState.DISCONNECTED


async def test_a_subscription_is_gone_at_the_server_when_it_is_closed(
    connect: Connect, address: str, topic: str
) -> None:
    async with connect(address) as client:
        async with client.subscribe(topic):
            assert (await client.publish(topic, "x")).subscribers == 1

        async def is_alone() -> bool:
            return not (await client.publish(topic, "x")).subscribers

        await until(is_alone, "the subscriber is still there", timeout_s=PATIENCE_S)
