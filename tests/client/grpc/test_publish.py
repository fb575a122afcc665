"""Batches of messages, and the summary of their acknowledgements."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.client.grpc.dialect import Acknowledgement, Entry, Placed, Refused
from penstock.client.grpc.publish import (
    BATCH_MESSAGES,
    BatchBuilder,
    SummaryBuilder,
    gather_batches,
    make_batches,
    make_receipt,
)
from penstock.client.messages import Outgoing
from penstock.errors import NotAuthorized


def test_messages_that_follow_one_another_to_a_topic_share_an_entry() -> None:
    (batch,) = make_batches([("a", b"1"), ("a", "2"), ("b", b"3"), ("a", b"4")])
    assert [(entry.topic, list(entry.payloads)) for entry in batch] == [
        ("a", [b"1", b"2"]),
        ("b", [b"3"]),
        ("a", [b"4"]),
    ]


def test_messages_with_different_properties_do_not_share_an_entry() -> None:
    (batch,) = make_batches(
        [
            Outgoing(topic="a", payload="1", message_id="x"),
            Outgoing(topic="a", payload="2", message_id="y"),
            Outgoing(topic="a", payload="3"),
            Outgoing(topic="a", payload="4", retain=True),
            Outgoing(topic="a", payload="5", retain=True, ttl_s=0.5),
            ("a", "6"),
        ]
    )
    assert [list(entry.payloads) for entry in batch] == [[b"1", b"2"], [b"3"], [b"4"], [b"5"], [b"6"]]
    assert [list(entry.message_ids) for entry in batch] == [["x", "y"], [], [], [], []]
    assert batch[3].ttl_ms == 500


def test_a_batch_is_full_by_number_or_by_size() -> None:
    sizes = [sum(len(entry.payloads) for entry in batch) for batch in make_batches([("a", b"")] * 9_000)]
    assert sizes == [BATCH_MESSAGES, BATCH_MESSAGES, 1_000]
    batching = BatchBuilder(limit_bytes=100)
    assert not batching.add(("a", bytes(50)))
    assert batching.add(("a", bytes(50)))


def test_refusals_are_counted_by_messages_and_placed_among_all() -> None:
    builder = SummaryBuilder()
    batch = [Entry("a", [b""] * 3), Entry("b", [b""] * 2)]
    builder.add(batch, Acknowledgement(5, [Placed(0, duplicates=1), Placed(1)], cursor="c1"))
    builder.add(batch, Acknowledgement(3, [Placed(0)], [Refused(1, "not-authorized", "no")], "c2"))
    summary = builder.build()
    (refusal,) = summary.refusals
    assert (summary.accepted, summary.refused, summary.duplicates, summary.cursor) == (8, 2, 1, "c2")
    assert (refusal.first, refusal.count, refusal.topic, refusal.code) == (8, 2, "b", "not-authorized")


def test_a_refusal_of_one_message_is_raised_as_what_it_is() -> None:
    with pytest.raises(NotAuthorized, match="not yours"):
        make_receipt(Entry("a", [b""]), Acknowledgement(0, [], [Refused(0, "not-authorized", "not yours")]))


async def test_messages_that_come_slowly_do_not_wait_for_a_full_batch() -> None:
    go_on = asyncio.Event()

    async def source() -> AsyncIterator[tuple[str, str]]:
        yield "a", "1"
        await go_on.wait()
        for number in range(BATCH_MESSAGES + 1):
            yield "a", str(number)

    make_batches = gather_batches(source())
    first = await asyncio.wait_for(anext(make_batches), 10)
    assert [list(entry.payloads) for entry in first] == [[b"1"]]
    go_on.set()
    sizes = [sum(len(entry.payloads) for entry in batch) async for batch in make_batches]
    assert sizes == [BATCH_MESSAGES, 1]


async def test_what_a_source_raises_comes_after_what_it_gave() -> None:
    async def source() -> AsyncIterator[tuple[str, str]]:
        yield "a", "1"
        raise KeyError("broken")

    got = []
    with pytest.raises(KeyError, match="broken"):
        async for batch in gather_batches(source()):
            got.append(batch)
    assert len(got) == 1
