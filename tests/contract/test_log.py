"""What every log owes: order, nothing lost or doubled on a read, honest ends, commits told in order."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.core.ports.log import Log, Ticket, Wanted
from penstock.model import Properties, Run
from tests.contract.storages import STORAGES, OpenStorage, Storage
from tests.support.samples import make_run, payloads_of

Message = tuple[int, bytes]
"""Offset and payload."""


@pytest.fixture(params=STORAGES)
def open_storage(request: pytest.FixtureRequest) -> OpenStorage:
    return STORAGES[request.param]


@pytest.fixture
async def writer(open_storage: OpenStorage, tmp_path: Path) -> AsyncIterator["Writer"]:
    async with open_storage(tmp_path / "data") as storage:
        yield Writer(storage)


class Writer:
    """Appends runs as a broker does: offsets rise, with gaps where a message was not kept."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.log = storage.log
        self.head = 0
        self.written: list[Message] = []
        self._sequences: Counter[str] = Counter()

    def append(self, *payloads: bytes, gap: int = 0, topic: str = "a", qos: int = 0) -> Run:
        offset, sequence = self.head + 1 + gap, self._sequences[topic] + 1
        run = make_run(topic, *payloads, qos=qos, sequence=sequence, offset=offset)
        run.published_at = time.time_ns() // 1_000
        self.log.append(run)
        self.written += messages_of([run])
        self.head = offset + len(payloads) - 1
        self._sequences[topic] += len(payloads)
        return run

    async def commit(self) -> None:
        """Wait until everything that was appended is committed."""
        await self.storage.commit(self.head)


def messages_of(runs: Iterable[Run], after: int = 0) -> list[Message]:
    """Single messages; of a run that began before `after` only what comes behind it."""
    return [
        (run.offset + index, payload)
        for run in runs
        for index, payload in enumerate(payloads_of(run))
        if run.offset + index > after
    ]


async def read_all(log: Log, after: int, limit_bytes: int, wanted: Wanted | None = None) -> list[Message]:
    """Everything after an offset, read chunk by chunk."""
    found: list[Message] = []
    while after < log.last_offset:
        span = await log.read(after, limit_bytes, wanted)
        assert span.until > after, "a reader gets on with every chunk"
        assert span.gaps == ()
        found += messages_of(span.runs, after)
        after = span.until
    return found


# Reading


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
    writer.log.append(run)
    writer.head = 3
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
    for after in range(0, writer.head + 2, 7):
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
    found = messages_of(run for run in writer.log.scan(4, lambda topic: topic == "a") if isinstance(run, Run))
    assert found == [(5, b"04"), (9, b"08"), (11, b"10")]


async def test_a_sequence_is_found_by_its_topic(writer: Writer) -> None:
    for number in range(20):
        writer.append(b"1", b"2", topic="ab"[number % 2])
        await writer.commit()
    for sequence in (0, 1, 2, 7, 20):
        after = await writer.log.find_sequence("b", sequence)
        assert after is not None
        runs = (await writer.log.read(after, 1_000_000, lambda topic: topic == "b")).runs
        assert runs[0].sequence <= max(sequence, 1)
        assert runs[-1].sequence == 19
    assert await writer.log.find_sequence("b", 21) is None
    assert await writer.log.find_sequence("c", 1) is None


async def test_everything_from_a_time_on_lies_after_its_offset(writer: Writer) -> None:
    now = time.time_ns() // 1_000
    times = [now + number // 3 * 1_000 for number in range(12)]  # several at the same time
    for at in times:
        writer.append(b"1").published_at = at
        await writer.commit()
    for at in times:
        after = writer.log.offset_at(at)
        first = times.index(at) + 1
        assert first - 3 <= after < first
    assert writer.log.offset_at(0) == 0
    assert 9 <= writer.log.offset_at(now + 1_000_000) <= 12


# Committing


async def test_what_is_appended_is_either_read_or_not_committed_and_never_both(writer: Writer) -> None:
    for number in range(20):
        writer.append(b"%02d" % number, b"%02d" % number, gap=number % 2)
        log = writer.log
        tail = messages_of(log.uncommitted(log.last_offset), log.last_offset)
        assert await read_all(log, 0, 1_000) + tail == writer.written
        if number % 5 == 4:
            await writer.commit()
            assert log.uncommitted(0) == []
            assert await read_all(log, 0, 1_000) == writer.written


async def test_a_commit_reaches_as_far_as_what_was_appended(writer: Writer) -> None:
    writer.append(b"1", b"2", gap=3)
    await writer.commit()
    assert writer.log.last_offset == 5
    ticket = writer.log.ticket
    writer.append(b"6")
    await writer.commit()
    assert writer.log.last_offset == 6
    assert writer.log.is_committed(ticket)


async def test_those_who_wait_are_told_in_their_order(writer: Writer) -> None:
    log = writer.log
    told: list[tuple[Ticket, int]] = []
    done = asyncio.get_running_loop().create_future()
    number = 0
    for turn in range(5):
        writer.append(b"1")
        for _ in range(3):
            ticket = log.ticket
            if not log.is_committed(ticket):
                log.when_committed(ticket, lambda failure, place=(ticket, number): told.append(place))  # type: ignore[misc]
            number += 1
        if turn == 4 and not log.is_committed(log.ticket):
            log.when_committed(log.ticket, done.set_result)
        elif turn == 4:
            done.set_result(None)
        log.end_turn(writer.head, is_urgent=turn % 2 == 0)
    assert await done is None
    assert told == sorted(told)
    assert len(told) in (0, 15)


# Starting again


async def test_a_log_started_again_is_another_one_or_in_a_later_epoch(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    async with open_storage(tmp_path) as storage:
        log_id, epoch = storage.log.log_id, storage.log.epoch
        assert bytes.fromhex(log_id).hex() == log_id
        assert len(log_id) == 16  # what a cursor has room for
        assert epoch == 1
    async with open_storage(tmp_path) as storage:
        assert storage.log.log_id != log_id or storage.log.epoch == 2


async def test_a_durable_log_has_everything_when_it_is_started_again(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    async with open_storage(tmp_path) as storage:
        writer = Writer(storage)
        for number in range(10):
            writer.append(b"%d" % number, topic="ab"[number % 2], gap=number % 3)
            await writer.commit()
        is_durable, head = storage.log.is_durable, storage.log.last_offset
    async with open_storage(tmp_path) as storage:
        log = storage.log
        kept = (writer.written, head, 5, 5, 0) if is_durable else ([], 0, 0, 0, 0)
        sequences = [log.last_sequence(topic) for topic in "abc"]
        assert (await read_all(log, 0, 1_000), log.last_offset, *sequences) == kept
        assert await log.topics_after("", 9) == ([("a", 5), ("b", 5)] if is_durable else [])
        assert await log.topics_after("", 1) == ([("a", 5)] if is_durable else [])
        assert await log.topics_after("a", 9) == ([("b", 5)] if is_durable else [])
        assert await log.topics_after("b", 9) == []


async def test_where_an_epoch_ended_is_known_as_long_as_its_log_is(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    ends: list[Any] = []
    for _ in range(3):
        async with open_storage(tmp_path) as storage:
            writer = Writer(storage)
            writer.head = storage.log.last_offset
            writer.append(b"1", b"2")
            await writer.commit()
            assert storage.log.end_of(storage.log.epoch) == storage.log.last_offset == writer.head
            assert storage.log.end_of(99) is None
            if storage.log.is_durable:
                assert [storage.log.end_of(epoch + 1) for epoch in range(len(ends))] == ends
                ends.append(writer.head)


async def test_two_logs_are_never_taken_for_one_another(open_storage: OpenStorage, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(open_storage(tmp_path / "one"))
        other = await stack.enter_async_context(open_storage(tmp_path / "other"))
        assert one.log.log_id != other.log.log_id
