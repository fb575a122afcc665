"""Batches: what is acknowledged and when, and what is refused."""

import grpc
import pytest

from penstock.common.cursor import Cursor
from penstock.wire.sidecar.messages import penstock as wire
from tests.doors.sidecar.v1.conftest import Build
from tests.doors.sidecar.v1.people import Caller, House, entry
from tests.support.waiting import until

INVALID, EXHAUSTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED


def refusals_of(ack: wire.PublishAck) -> list[tuple[int, str]]:
    return [(refusal.index, refusal.code) for refusal in ack.refusals]


async def test_batch_is_acknowledged_with_where_each_entry_stands(house: House, caller: Caller) -> None:
    publisher = caller.publish()
    await publisher.send(entry("plant/1", b"before"))
    ack = await publisher.send(entry("plant/1", b"a", b"b", b"c"), entry("plant/2", b"long", b"er"))
    assert ack.accepted == 5
    assert [(placed.index, placed.sequence) for placed in ack.placed] == [(0, 2), (1, 1)]
    last = list(house.broker.topics["plant/2"].runs)[-1]
    assert Cursor.decode(ack.cursor).positions[0].offset == last.offset + last.count - 1
    await publisher.end()


async def test_batches_are_acknowledged_in_their_order(caller: Caller) -> None:
    publisher = caller.publish()
    written = [await publisher.write(entry("a", bytes(size))) for size in range(100)]
    await publisher.call.done_writing()
    assert [(await publisher.read()).batch_id for _ in written] == written


async def test_call_without_batches_ends_well(caller: Caller) -> None:
    await caller.publish().end()


async def test_payloads_of_all_lengths_arrive_as_they_were(caller: Caller) -> None:
    listener = await caller.listen("a")
    payloads = [b"x" * 130] * 40 + [b"", b"", b"yy", b"z" * 130] + [b"w" * 5_000] * 3 + [b"v" * 70_000]
    ack = await caller.publish_once("a", *payloads)
    assert ack.accepted == len(payloads)
    got = await listener.messages(len(payloads))
    assert got == [("a", payload, sequence) for sequence, payload in enumerate(payloads, 1)]


async def test_many_small_messages_are_few_runs(house: House, caller: Caller) -> None:
    listener = await caller.listen("a")
    payloads = [b"%04d" % number for number in range(2_000)]
    await caller.publish_once("a", *payloads)
    assert [payload for _, payload, _ in await listener.messages(2_000)] == payloads
    assert len(listener.runs) <= 4


async def test_what_travels_with_payloads_arrives_with_each_run(caller: Caller) -> None:
    listener = await caller.listen("a")
    await caller.publish_once(
        "a",
        *[b"x" * 100] * 20,
        content_type="text/plain",
        correlation_id=b"\xff\x00",
        response_topic="b",
        user_properties=[wire.Property(name="n", value="1"), wire.Property(name="n", value="2")],
    )
    await listener.messages(20)
    run = listener.runs[0]
    assert (run.content_type, run.correlation_id, run.response_topic) == ("text/plain", b"\xff\x00", "b")
    assert [(pair.name, pair.value) for pair in run.user_properties] == [("n", "1"), ("n", "2")]
    assert run.qos == 1 and run.published_at_us > 0 and not run.is_retained and not run.is_replay


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (entry("", b"x"), "invalid-topic"),
        (entry("a/+", b"x"), "invalid-topic"),
        (entry("$SYS/x", b"x"), "not-authorized"),
        (entry("a"), "invalid-request"),
        (entry("a", b"x", ttl_ms=-1), "invalid-request"),
        (entry("a", b"x", ttl_ms=2**62), "invalid-request"),
        (entry("a", b"x", b"y", message_ids=["1"]), "invalid-request"),
        (entry("a", b"x", message_ids=["n" * 300]), "invalid-request"),
        (entry("a", b"x", message_ids=[""]), "invalid-request"),
        (entry("a", b"x", response_topic="#"), "invalid-topic"),
        (entry("a", b"x" * 100, b"y" * 2_000), "too-large"),
        (entry("a", b"x", content_type="x" * 70_000), "too-large"),
    ],
)
async def test_entry_that_may_not_be_published_costs_the_others_nothing(
    build: Build, bad: wire.Messages, code: str
) -> None:
    house = await build(max_payload_bytes=1_500)
    caller = house.caller()
    publisher = caller.publish()
    ack = await publisher.send(entry("good", b"1"), bad, entry("good", b"2"))
    assert refusals_of(ack) == [(1, code)]
    assert ack.accepted == 2
    assert [(placed.index, placed.sequence) for placed in ack.placed] == [(0, 1), (2, 2)]
    assert house.broker.counters.published == 2
    assert house.broker.counters.publishes_refused == 1
    await publisher.end()


async def test_message_is_published_once_under_its_id(house: House, caller: Caller) -> None:
    listener = await caller.listen("a")
    first = await caller.publish_once("a", b"1", b"2", message_ids=["one", "two"])
    second = await caller.publish_once("a", b"2", b"3", message_ids=["two", "three"])
    third = await caller.publish_once("a", b"2", message_ids=["two"])
    told = [
        (ack.accepted, ack.placed[0].sequence, ack.placed[0].duplicates) for ack in (first, second, third)
    ]
    assert told == [(2, 1, 0), (2, 3, 1), (1, 2, 1)]
    assert await listener.messages(3) == [("a", b"1", 1), ("a", b"2", 2), ("a", b"3", 3)]
    assert [run.message_id for run in listener.runs] == ["one", "two", "three"]


async def test_entries_with_and_without_ids_keep_their_order(caller: Caller) -> None:
    listener = await caller.listen("a")
    publisher = caller.publish()
    await publisher.send(entry("a", b"1"), entry("a", b"2", message_ids=["x"]), entry("a", b"3"))
    assert [payload for _, payload, _ in await listener.messages(3)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("bad", [b"\xff\xff", b"\x12\x05\x0a\x03\xff\xfe\xfd", b"\x12\x7fshort", b"\x08"])
async def test_undecodable_batch_ends_the_call_behind_the_acknowledgements(
    caller: Caller, bad: bytes
) -> None:
    publisher = caller.publish()
    await publisher.write(entry("a", b"1"))
    await publisher.call.write(bad)
    assert (await publisher.read()).accepted == 1
    assert await publisher.ending() == (INVALID, "invalid-request: not a valid PublishBatch")


async def test_batch_with_too_many_messages_is_refused_before_it_is_looked_at(
    house: House, caller: Caller
) -> None:
    for batch in ((entry("a", *[b""] * 10_001),), (entry("a"),) * 10_001):
        publisher = caller.publish()
        await publisher.write(*batch)
        assert await publisher.ending() == (EXHAUSTED, "too-large: a batch has 10000 messages at most")
    assert house.broker.counters.published == 0


async def test_figures_of_a_placed_entry_are_true(house: House, caller: Caller) -> None:
    await caller.listen("a")
    slow = await caller.listen("a", credit=1, max_buffer_size=2)
    publisher = caller.publish()
    await publisher.send(entry("a", b"0"))
    ack = await publisher.send(*(entry("a", b"%d" % number) for number in range(1, 6)))
    assert [placed.subscribers for placed in ack.placed] == [2] * 5
    assert [placed.subscribers_dropped for placed in ack.placed] == [0, 0, 1, 1, 1]
    assert [placed.subscribers_blocked for placed in ack.placed] == [0] * 5
    assert [payload for _, payload, _ in await slow.messages(1)] == [b"0"]
    await slow.ask(credit=wire.Credit(messages=9))
    assert [payload for _, payload, _ in await slow.messages(2)] == [b"4", b"5"]


async def test_publisher_waits_for_a_slow_subscriber_under_block(house: House, caller: Caller) -> None:
    slow = await caller.listen("a", credit=1, max_buffer_size=2, policy=wire.POLICY_BLOCK)
    publisher = caller.publish()
    await publisher.send(entry("a", b"1"))
    assert await slow.messages(1) == [("a", b"1", 1)]
    await publisher.write(*(entry("a", b"%d" % number) for number in range(2, 6)))
    await publisher.write(entry("a", b"6"))
    await until(lambda: house.broker.topics["a"].sequence == 5, "sequence did not become 5")
    with pytest.raises(TimeoutError):
        await publisher.read(timeout=0.3)
    assert house.broker.topics["a"].sequence == 5  # the second batch is not even published
    await slow.ask(credit=wire.Credit(messages=100))
    assert [payload for _, payload, _ in await slow.messages(5)] == [b"2", b"3", b"4", b"5", b"6"]
    first, second = await publisher.read(), await publisher.read()
    assert [placed.subscribers_blocked for placed in first.placed] == [0, 0, 1, 1]
    assert second.accepted == 1


async def test_publisher_that_gives_up_while_it_is_held_publishes_no_more(
    house: House, caller: Caller
) -> None:
    slow = await caller.listen("a", credit=1, max_buffer_size=1, policy=wire.POLICY_BLOCK)
    publisher = caller.publish(timeout=1.0)
    await publisher.send(entry("a", b"1"))
    await slow.messages(1)
    await publisher.write(entry("a", b"2"), entry("a", b"3"))
    await publisher.write(entry("a", b"never"))
    assert (await publisher.ending())[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    await slow.ask(credit=wire.Credit(messages=9))
    assert [payload for _, payload, _ in await slow.messages(2)] == [b"2", b"3"]
    await caller.publish_once("a", b"4")
    assert await slow.messages(1) == [("a", b"4", 4)]


async def test_publisher_that_is_held_stops_no_other_call(caller: Caller) -> None:
    slow = await caller.listen("a", credit=1, max_buffer_size=1, policy=wire.POLICY_BLOCK)
    held = caller.publish()
    await held.send(entry("a", b"1"))
    await held.write(entry("a", b"2"), entry("a", b"3"))
    with pytest.raises(TimeoutError):
        await held.read(timeout=0.2)
    assert (await caller.publish_once("b", b"1")).accepted == 1
    await slow.ask(credit=wire.Credit(messages=9))
    assert (await held.read()).accepted == 2
