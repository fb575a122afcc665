"""Log writers: whole turns, commits in order, and offsets that only rise."""

import asyncio
from pathlib import Path

from penstock.core.durability.records import BEHIND, BehindRecord
from penstock.core.ports.log import Ticket
from tests.contract.storages import OpenStorage, Storage
from tests.contract.writer import Writer, messages_of, read_all
from tests.support.turns import end_turn


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
        end_turn(log, is_urgent=turn % 2 == 0)
    assert await done is None
    assert told == sorted(told)
    assert len(told) in (0, 15)


async def test_the_records_of_a_turn_are_committed_with_its_messages(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    async with open_storage(tmp_path) as storage:
        writer = Writer(storage)
        for number in range(1, 4):
            writer.append(b"%d" % number, qos=1)
            storage.turn.put(BEHIND, "c", BehindRecord(number))
            await writer.commit()
        is_durable = storage.log.is_durable
    async with open_storage(tmp_path) as storage:
        records = dict(storage.state.scan(BEHIND))
        assert (records, storage.log.last_offset) == (({"c": BehindRecord(3)}, 3) if is_durable else ({}, 0))


async def test_a_turn_without_messages_moves_the_end_of_a_durable_log(storage: Storage) -> None:
    storage.log.sequencer.head = 7  # of topics that are not captured
    storage.turn.put(BEHIND, "c", BehindRecord(7))
    await storage.commit()
    assert storage.log.last_offset == (7 if storage.log.is_durable else 0)
    assert storage.turn.is_empty


async def test_offsets_go_on_where_a_durable_log_ended(open_storage: OpenStorage, tmp_path: Path) -> None:
    async with open_storage(tmp_path) as storage:
        Writer(storage).append(b"1", b"2", gap=4)
        await storage.commit()
        is_durable = storage.log.is_durable
    async with open_storage(tmp_path) as storage:
        assert storage.log.sequencer.head == (6 if is_durable else 0)
