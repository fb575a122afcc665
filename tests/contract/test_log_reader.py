"""Log readers: order, nothing lost or doubled on a read, honest ends."""

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from penstock.model import Properties
from penstock.runs import Run
from tests.contract.storages import OpenStorage
from tests.contract.writer import Writer, messages_of, read_all
from tests.support.samples import make_run, readable


async def test_a_new_log_has_nothing(writer: Writer) -> None:
    log = writer.log
    span = await log.read(0, 1_000)
    assert (span.runs, span.until, span.gaps) == ((), 0, ())
    assert (log.first_offset, log.last_offset, log.failure) == (1, 0, None)
    assert log.uncommitted(0) == []


async def test_what_was_appended_comes_back_with_all_its_stamps(writer: Writer) -> None:
    properties = Properties("text/plain", b"\0\1", "r/t", 1, "m", (("k", "1"), ("$k", "2"), ("k", "3")))
    run = make_run(
        "a/b", b"1", qos=1, retain=True, sequence=7, offset=3, client_id="c", ttl=600.0, properties=properties
    )
    run.published_at, run.expires_at = time.time_ns() // 1_000, time.monotonic() + run.ttl
    writer.log.sequencer.turn.runs.append(run)
    writer.log.sequencer.head = 3
    await writer.commit()
    (found,) = (await writer.log.read(0, 1_000)).runs
    assert (found.topic, found.payload(), found.count) == ("a/b", b"1", 1)
    assert (found.sequence, found.offset, found.published_at) == (7, 3, run.published_at)
    assert (found.client_id, found.properties, found.ttl) == ("c", properties, 600.0)
    assert (found.shape.door, found.shape.qos, found.shape.retain) == ("mqtt", 1, True)
    assert abs(found.expires_at - run.expires_at) < 60.0  # the wall clock of a machine may be moved a little


@pytest.mark.parametrize("limit_bytes", [1, 50, 1_000, 1_000_000])
async def test_reading_on_from_any_offset_gives_every_message_once_and_in_order(
    writer: Writer, limit_bytes: int
) -> None:
    chance = random.Random(limit_bytes)
    for number in range(60):
        size = chance.choice((0, 1, 30))
        payloads = [bytes([number]) * size] * chance.randint(1, 5)
        writer.append(*payloads, gap=chance.choice((0, 0, 3)))
        if chance.random() < 0.2:
            await writer.commit()
    await writer.commit()
    for after in range(0, writer.log.sequencer.head + 2, 7):
        expected = [message for message in writer.written if message[0] > after]
        assert await read_all(writer.log, after, limit_bytes) == expected


async def test_a_chunk_is_about_as_large_as_was_asked_for(writer: Writer) -> None:
    for _ in range(50):
        writer.append(bytes(100))
    await writer.commit()
    span = await writer.log.read(0, 1_000)
    assert 1_000 <= sum(len(run.slab) for run in span.runs) <= 2_000
    assert span.until == span.runs[-1].offset


async def test_only_wanted_topics_are_read_and_each_is_asked_for_once(writer: Writer) -> None:
    for number in range(30):
        writer.append(b"%02d" % number, topic="abc"[number % 3])
    await writer.commit()
    asked: Counter[str] = Counter()

    def wanted(topic: str) -> bool:
        asked[topic] += 1
        return topic == "b"

    span = await writer.log.read(0, 1_000_000, wanted)
    assert messages_of(span.runs) == writer.written[1::3]
    assert span.until == 30
    assert asked == {"a": 1, "b": 1, "c": 1}
    assert await read_all(writer.log, 0, 5, wanted) == writer.written[1::3]


async def test_a_reader_at_the_head_finds_what_comes_next(writer: Writer) -> None:
    writer.append(b"1")
    await writer.commit()
    span = await writer.log.read(1, 1_000)
    assert (span.runs, span.until) == ((), 1)
    writer.append(b"2", gap=5)
    await writer.commit()
    assert await read_all(writer.log, 1, 1_000) == [(7, b"2")]


async def test_single_messages_are_found_by_their_offsets(writer: Writer) -> None:
    writer.append(b"1", b"2", b"3")
    writer.append(b"6", gap=2)
    await writer.commit()
    expected = {2: b"2", 3: b"3", 6: b"6"}
    found: asyncio.Future[dict[int, Run]] = asyncio.get_running_loop().create_future()
    writer.log.fetch([2, 3, 4, 6, 7], found.set_result)
    assert {offset: run.payload() for offset, run in (await found).items()} == expected
    loaded = writer.log.load([2, 3, 4, 6, 7])
    assert {offset: run.payload() for offset, run in loaded.items()} == expected
    assert all((run.offset, run.count) == (offset, 1) for offset, run in loaded.items())


async def test_a_scan_gives_what_is_wanted_at_a_quality_of_service(writer: Writer) -> None:
    for number in range(12):
        writer.append(b"%02d" % number, topic="ab"[number % 2], qos=number % 3)
    await writer.commit()
    found = readable(writer.log.scan(4, lambda topic: topic == "a"))
    assert messages_of(found) == [(5, b"04"), (9, b"08"), (11, b"10")]


async def test_a_message_of_the_present_turn_is_found_by_its_offset(writer: Writer) -> None:
    writer.append(b"1")
    await writer.commit()
    writer.append(b"2", b"3")
    found: asyncio.Future[dict[int, Run]] = asyncio.get_running_loop().create_future()
    writer.log.fetch([1, 3, 4], found.set_result)
    assert {offset: run.payload() for offset, run in (await found).items()} == {1: b"1", 3: b"3"}


async def test_a_durable_log_has_every_message_when_it_is_started_again(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    async with open_storage(tmp_path) as storage:
        writer = Writer(storage)
        for number in range(10):
            writer.append(b"%d" % number, topic="ab"[number % 2], gap=number % 3)
            await writer.commit()
        is_durable, head = storage.log.is_durable, storage.log.last_offset
    async with open_storage(tmp_path) as storage:
        kept = (writer.written, head) if is_durable else ([], 0)
        assert (await read_all(storage.log, 0, 1_000), storage.log.last_offset) == kept
