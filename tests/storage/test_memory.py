"""Log in memory beside its contract: frees memory at once and reports what was removed."""

import pytest

from penstock.common.statement import Gap
from penstock.core.settings import LogSettings
from penstock.core.topics.ring import RUN_BYTES
from penstock.model import Reason
from penstock.storage.memory import MemoryLog
from tests.support.samples import make_run
from tests.support.turns import end_turn


def append(log: MemoryLog, offset: int, size: int) -> None:
    log.sequencer.turn.runs.append(make_run("a", bytes(size), sequence=offset, offset=offset))
    end_turn(log, offset)


async def offsets_in(log: MemoryLog, after: int = 0) -> list[int]:
    return [run.offset for run in (await log.read(after, 1 << 30)).runs]


def test_runs_that_left_hold_no_memory_though_their_places_are_removed_in_steps() -> None:
    log = MemoryLog(100_000)
    for offset in range(1, 1_500):
        append(log, offset, 10_000)
        assert sum(len(run.slab) for run in log._runs) <= 100_000


async def test_the_places_of_runs_that_left_are_removed_too() -> None:
    log = MemoryLog(10 * (RUN_BYTES + 10))
    for offset in range(1, 10_000):
        append(log, offset, 10)
    assert len(log._runs) < 3_000
    assert await offsets_in(log) == list(range(9_990, 10_000))
    assert list(log.load([9_989, 9_990, 9_999])) == [9_990, 9_999]


async def test_a_log_that_may_keep_less_lets_go_in_steps() -> None:
    log = MemoryLog(1 << 30)
    for offset in range(1, 10_001):
        append(log, offset, 10)
    log.configure(LogSettings(memory_bytes=10 * (RUN_BYTES + 10)))
    append(log, 10_001, 10)
    assert len(await offsets_in(log)) > 9_000
    steps = 1
    while log.shed():
        steps += 1
    assert steps > 5
    assert await offsets_in(log) == list(range(9_992, 10_002))


@pytest.mark.parametrize("limit_bytes", [0, 1, RUN_BYTES])
async def test_a_log_without_room_keeps_nothing_and_says_so(limit_bytes: int) -> None:
    log = MemoryLog(limit_bytes)
    append(log, 5, 1)
    span = await log.read(0, 1_000)
    assert (span.runs, span.until, span.gaps) == ((), 5, (Gap(1, 5, Reason.RETENTION),))
    assert (log.first_offset, log.last_offset) == (6, 5)


async def test_the_oldest_are_removed_first_and_a_read_reports_the_gap() -> None:
    log = MemoryLog(10 * (RUN_BYTES + 1_000))
    for offset in range(1, 31):
        append(log, offset, 1_000)
    assert log.first_offset == 21
    assert await offsets_in(log) == await offsets_in(log, 20) == list(range(21, 31))
    assert (await log.read(5, 1_000)).gaps == (Gap(6, 20, Reason.RETENTION),)
    assert (await log.read(20, 1_000)).gaps == ()


async def test_a_chunk_of_messages_without_payload_has_an_end_too() -> None:
    log = MemoryLog(1 << 20)
    for offset in range(1, 501):
        append(log, offset, 0)
    assert 0 < len((await log.read(0, 1_000)).runs) < 100


def test_a_turn_is_committed_as_soon_as_it_is_over_and_nothing_waits_for_it() -> None:
    log = MemoryLog(1_000)
    run = make_run("a", b"x", offset=1)
    log.sequencer.turn.runs.append(run)
    assert (log.uncommitted(0), log.last_offset) == ([run], 0)
    end_turn(log, 1)
    assert (log.is_durable, log.failure, log.uncommitted(0), log.last_offset) == (False, None, [], 1)
    assert log.is_committed(log.ticket)
    told: list[Exception | None] = []
    log.when_committed(log.ticket, told.append)
    assert told == [None]


def test_a_clock_that_was_set_back_hides_nothing_from_reads_by_time() -> None:
    log = MemoryLog(100_000)
    for offset, published_at in enumerate((100, 200, 300, 150, 250), start=1):
        run = make_run("a", b"x", sequence=offset, offset=offset)
        run.published_at = published_at
        log.sequencer.turn.runs.append(run)
    end_turn(log, 5)
    assert [log.offset_at(at) for at in (0, 100, 101, 250, 300, 301)] == [0, 0, 1, 2, 2, 5]
