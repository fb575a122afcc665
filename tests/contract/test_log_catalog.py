"""Log catalogs: topics, their sequences, and positions by time."""

import time
from pathlib import Path

from tests.contract.storages import OpenStorage
from tests.contract.writer import Writer


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


async def test_a_durable_log_knows_its_topics_when_it_is_started_again(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    async with open_storage(tmp_path) as storage:
        writer = Writer(storage)
        for number in range(10):
            writer.append(b"%d" % number, topic="ab"[number % 2], gap=number % 3)
            await writer.commit()
        is_durable = storage.log.is_durable
    async with open_storage(tmp_path) as storage:
        log = storage.log
        expected = [5, 5, 0] if is_durable else [0, 0, 0]
        assert [log.last_sequence(topic) for topic in "abc"] == expected
        assert log.last_sequences(["c", "a", "b"]) == dict(zip("abc", expected, strict=True))
        assert await log.topics_after("", 9) == ([("a", 5), ("b", 5)] if is_durable else [])
        assert await log.topics_after("", 1) == ([("a", 5)] if is_durable else [])
        assert await log.topics_after("a", 9) == ([("b", 5)] if is_durable else [])
        assert await log.topics_after("b", 9) == []
